#include "tests/launch/disk_model.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

std::string plain(const std::string& path) {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

bool is_in(const std::string& path, const std::string& place) {
  return path == place || path.starts_with(place + "/");
}

/// The kind of a thing and its paths.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, '\t');) {
    words.push_back(words.empty() ? word : plain(word));
  }
  return words;
}

/// Those at `from` and below are at `to` now.
void move_names(std::set<std::string>& paths, const std::string& from, const std::string& to) {
  std::set<std::string> moved;
  for (const std::string& path : paths) {
    moved.insert(is_in(path, from) ? to + path.substr(from.size()) : path);
  }
  paths = moved;
}

}  // namespace

DiskModel::DiskModel(const std::string& log) {
  for (const std::string& line : lines_of(log)) take(words_of(line));
}

void DiskModel::take(const std::vector<std::string>& words) {
  const std::string& kind = words[0];
  const std::string& path = words[1];
  things_.push_back(kind + " " + path + (words.size() > 2 ? " " + words[2] : ""));
  if (kind == "make") names_.insert(folder_of(path));
  if (kind == "write") files_.insert(path);
  if (kind == "sync") {
    for (auto* const kept : {&files_, &names_, &renamed_}) kept->erase(path);
  }
  if (kind == "remove") remove(path);
  if (kind == "rename") rename(path, words[2]);
  if (kind == "swap") {
    expect_kept(path, things_.back());
    for (auto* const paths : {&files_, &names_, &renamed_}) {
      move_names(*paths, words[2], "swapped");
      move_names(*paths, path, words[2]);
      move_names(*paths, "swapped", path);
    }
    names_.insert(folder_of(path));
    renamed_.insert(folder_of(path));
  }
}

void DiskModel::expect_kept(const std::string& path, const std::string& thing) {
  for (const auto* const losable : {&files_, &names_}) {
    for (const std::string& lost : *losable) {
      if (is_in(lost, path)) mistakes_.push_back(thing + ": " + lost + " is not on the disk");
    }
  }
}

void DiskModel::rename(const std::string& from, const std::string& to) {
  expect_kept(from, things_.back());
  for (auto* const paths : {&files_, &names_, &renamed_}) {
    std::erase_if(*paths, [&](const std::string& path) { return is_in(path, to); });
    move_names(*paths, from, to);
  }
  for (const std::string& folder : {folder_of(from), folder_of(to)}) {
    names_.insert(folder);
    renamed_.insert(folder);
  }
}

void DiskModel::remove(const std::string& path) {
  for (const std::string& folder : renamed_) {
    if (is_in(folder, path)) continue;  // what has left it is elsewhere
    mistakes_.push_back(things_.back() + ": a new name in " + folder + " is not on the disk");
  }
  for (auto* const paths : {&files_, &names_, &renamed_}) {
    std::erase_if(*paths, [&](const std::string& there) { return is_in(there, path); });
  }
}

std::set<std::string> DiskModel::losable() const {
  std::set<std::string> all = files_;
  all.insert(names_.begin(), names_.end());
  return all;
}

}  // namespace moesaic::test
