// Makes safetensors files for tests, without the engine's own code.
#ifndef TESTS_SUPPORT_SAFETENSORS_WRITER_H_
#define TESTS_SUPPORT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// A file of a header, taken as it is, and data.
inline std::string SafetensorsFile(std::string_view header,
                                   std::string_view data) {
  const uint64_t size = header.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
  return file.append(header).append(data);
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

// Collects tensors in the order they are added.
class SafetensorsWriter {
 public:
  void Add(const std::string& name, const std::string& dtype,
           const std::vector<int64_t>& shape, const std::string& bytes) {
    if (!header_.empty()) header_ += ",";
    header_ += "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[";
    for (size_t i = 0; i < shape.size(); ++i) {
      header_ += (i == 0 ? "" : ",") + std::to_string(shape[i]);
    }
    header_ += "],\"data_offsets\":[" + std::to_string(data_.size()) + ",";
    data_ += bytes;
    header_ += std::to_string(data_.size()) + "]}";
  }
  void AddF32(const std::string& name, const std::vector<int64_t>& shape,
              const std::vector<float>& values) {
    Add(name, "F32", shape, BytesOf(values));
  }

  std::string File() const {
    return SafetensorsFile("{" + header_ + "}", data_);
  }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_SAFETENSORS_WRITER_H_
