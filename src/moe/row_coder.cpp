#include "src/moe/row_coder.h"

#include <cstring>

namespace moesaic {

void DecodedRows::start(std::int64_t sources, std::int64_t row_bytes) {
  row_bytes_ = row_bytes;
  rows_.reserve(sources * row_bytes);
  is_there_.assign(static_cast<std::size_t>(sources), false);
}

std::span<const std::int64_t> DecodedRows::take_missing(std::span<const std::int32_t> sources) {
  missing_.clear();
  for (const std::int32_t source : sources) {
    const auto at = static_cast<std::size_t>(source);
    if (is_there_[at]) continue;
    is_there_[at] = true;
    missing_.push_back(source);
  }
  return missing_;
}

RowForm RowCoder::form(const MoeOptions& options, bool is_training) const {
  if (codes_ && options.int8_rows && !is_training) return RowForm::codes;
  return codes_ || options.wire != WireForm::int8 ? RowForm::plain : RowForm::rounded;
}

void RowCoder::encode(MatrixView<const float> x, RowForm form, WireRows& rows) const {
  switch (form) {
    case RowForm::plain:
      rows.resize(x.rows(), row_bytes());
      break;
    case RowForm::codes:
      rows.resize(x.rows(), codes_->bytes());
      break;
    case RowForm::rounded:
      rows.resize(x.rows(), rounding().bytes(hidden_));
      break;
  }
  compute_.pool->for_each_row(x.rows(), [&](std::int64_t token) {
    const std::span<const float> from = x.row(token);
    std::byte* const to = rows.activations(token);
    if (form == RowForm::plain) return write_numbers(from, to);
    if (form == RowForm::rounded) return rounding().encode(from.data(), hidden_, to);
    codes_->encode(from.data(), to);
  });
}

void RowCoder::decode(std::span<const std::int32_t> sources, RowForm form,
                      const PendingDispatch& dispatch, DecodedRows& rows) const {
  const std::span<const std::int64_t> missing = rows.take_missing(sources);
  compute_.pool->for_each_row(std::ssize(missing), [&](std::int64_t i) {
    const std::int64_t source = missing[static_cast<std::size_t>(i)];
    std::byte* const to = rows.row(source);
    const auto write = [&](std::int64_t first, std::span<const float> numbers) {
      write_numbers(numbers, to + first * element_bytes(element_));
    };
    const std::byte* const from = dispatch.source(source);
    if (form == RowForm::rounded) return rounding().decode(from, hidden_, write);
    codes_->decode(from, write);
  });
}

void RowCoder::write_numbers(std::span<const float> numbers, std::byte* to) const {
  if (element_ == RowSource::Element::bf16) {
    compute_.vector->to_bf16(numbers.data(), std::ssize(numbers), reinterpret_cast<BFloat16*>(to));
  } else {
    std::memcpy(to, numbers.data(), numbers.size_bytes());
  }
}

}  // namespace moesaic
