// Compiled with nothing but a precompiled header.
