#include "comm/far_send.h"

#include <algorithm>
#include <cstring>

namespace moesaic {
namespace {

constexpr int kExchangeTags = static_cast<int>(kFarMessages);
constexpr int kFirstTag = kExchangeTags;  // collective calls use those below
constexpr int kExchanges = 14;            // more than are under way
static_assert(kExchanges >= OperationRing<Operation>::kPlaces);

}  // namespace

int far_tag(std::uint64_t exchange, std::int64_t index) {
  return kFirstTag + static_cast<int>(exchange % kExchanges) * kExchangeTags +
         static_cast<int>(index);
}

int last_far_tag() {
  return far_tag(kExchanges - 1, kFarMessages - 1);
}

void FarSend::start(const RowJob& job, Messages& messages) {
  job_ = &job;
  messages_ = &messages;
  find_rows();
  write_head();
  const auto later = std::ranges::lower_bound(rows_, job.send.later_rows);
  write_rows(static_cast<std::size_t>(later - rows_.begin()), rows_.size());
  write_checksums();
}

/// The distinct rows, in ascending order, and where each is among them.
void FarSend::find_rows() {
  std::int32_t last = -1;
  for (const int rank : ranks_) {
    for (const std::int32_t row : job_->parts[static_cast<std::size_t>(rank)]) {
      last = std::max(last, row);
    }
  }
  place_of_row_.assign(static_cast<std::size_t>(last + 1), -1);
  for (const int rank : ranks_) {
    for (const std::int32_t row : job_->parts[static_cast<std::size_t>(rank)]) {
      place_of_row_[static_cast<std::size_t>(row)] = 0;
    }
  }
  rows_.clear();
  for (std::int32_t row = 0; row <= last; ++row) {
    std::int32_t& place = place_of_row_[static_cast<std::size_t>(row)];
    if (place < 0) continue;
    place = static_cast<std::int32_t>(rows_.size());
    rows_.push_back(row);
  }
}

void FarSend::write_head() {
  const RowSend& send = job_->send;
  header_ = {.exchange = job_->number,
             .label = send.label,
             .row_bytes = send.row_bytes - send.tag_bytes,
             .tag_bytes = send.tag_bytes,
             .num_rows = std::ssize(rows_),
             .num_ranks = static_cast<std::int32_t>(ranks_.size())};
  for (const int rank : ranks_) {
    header_.num_places += std::ssize(job_->parts[static_cast<std::size_t>(rank)]);
  }
  const auto only = job_->parts[static_cast<std::size_t>(ranks_.front())];
  header_.has_places = ranks_.size() == 1 && std::ranges::equal(only, rows_) ? 0 : 1;
  header_.has_checksums = job_->is_checked ? 1 : 0;
  lacks_checksums_ = job_->is_checked;
  cut_far_message(header_, send.later_rows > 0);
  layout_ = far_layout(header_);
  message_.reserve(layout_.end);
  missing_.clear();
  for (std::int64_t message = 0; message < layout_.num_messages(); ++message) {
    missing_.push_back(layout_.message_begin(message + 1) - layout_.message_begin(message));
  }
  std::memcpy(message_.data(), &header_, sizeof header_);
  write_places(message_.data() + layout_.counts, message_.data() + layout_.places);
  std::byte* tag = message_.data() + layout_.tags;
  for (const std::int32_t row : rows_) {
    if (send.tag_bytes == 0) break;
    std::memcpy(tag, send.base + row * send.stride_bytes + header_.row_bytes,
                static_cast<std::size_t>(send.tag_bytes));
    tag += send.tag_bytes;
  }
  job_->counters->bytes_far += layout_.end;
  job_->counters->rows_saved += header_.num_places - header_.num_rows;
  fill(0, layout_.rows);
}

void FarSend::write_places(std::byte* counts, std::byte* places) const {
  for (const int rank : ranks_) {
    const std::span<const std::int32_t> part = job_->parts[static_cast<std::size_t>(rank)];
    const std::int64_t count = std::ssize(part);
    std::memcpy(counts, &count, sizeof count);
    counts += sizeof count;
    if (header_.has_places == 0) continue;
    for (const std::int32_t row : part) {
      std::memcpy(places, &place_of_row_[static_cast<std::size_t>(row)], sizeof row);
      places += sizeof row;
    }
  }
}

void FarSend::mark_ready(std::int64_t first, std::int64_t count) {
  const auto begin = std::ranges::lower_bound(rows_, first);
  const auto end = std::ranges::lower_bound(rows_, first + count);
  write_rows(static_cast<std::size_t>(begin - rows_.begin()),
             static_cast<std::size_t>(end - rows_.begin()));
  write_checksums();
}

/// Once, as soon as all rows of the matrix are there, whether any of them travel or not.
void FarSend::write_checksums() {
  if (!lacks_checksums_ || !job_->all_ready()) return;
  lacks_checksums_ = false;
  std::byte* to = message_.data() + layout_.checksums;
  for (const int rank : ranks_) {
    const std::uint64_t checksum =
        row_checksum(job_->send, job_->parts[static_cast<std::size_t>(rank)]);
    std::memcpy(to, &checksum, sizeof checksum);
    to += sizeof checksum;
  }
  fill(layout_.checksums, layout_.end);
}

/// Rows [first, last) of those that travel.
void FarSend::write_rows(std::size_t first, std::size_t last) {
  const RowSend& send = job_->send;
  std::int64_t offset = layout_.rows + static_cast<std::int64_t>(first) * header_.row_bytes;
  for (std::size_t i = first; i < last; ++i, offset += header_.row_bytes) {
    std::memcpy(message_.data() + offset, send.base + rows_[i] * send.stride_bytes,
                static_cast<std::size_t>(header_.row_bytes));
    fill(offset, offset + header_.row_bytes);
  }
}

/// Bytes [begin, end) are written; messages that are whole now leave.
void FarSend::fill(std::int64_t begin, std::int64_t end) {
  while (begin < end) {
    const std::int64_t message = layout_.message_at(begin);
    const std::int64_t first = layout_.message_begin(message);
    const std::int64_t last = layout_.message_begin(message + 1);
    std::int64_t& missing = missing_[static_cast<std::size_t>(message)];
    missing -= std::min(end, last) - begin;
    if (missing == 0) {
      messages_->send(agent_, far_tag(header_.exchange, message),
                      {message_.data() + first, static_cast<std::size_t>(last - first)});
      ++job_->counters->messages;
    }
    begin = last;
  }
}

}  // namespace moesaic
