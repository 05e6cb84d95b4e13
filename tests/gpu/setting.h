#pragma once

#include <cstdlib>
#include <string>

namespace moesaic {

/// Sets a variable of the fake driver or NCCL while it lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

}  // namespace moesaic
