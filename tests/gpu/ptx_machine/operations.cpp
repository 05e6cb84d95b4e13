// What every instruction does that the machine knows, by its whole name.

#include <bit>
#include <cmath>
#include <unordered_map>

#include "tests/gpu/ptx_machine/collective_operations.h"
#include "tests/gpu/ptx_machine/memory_operations.h"
#include "tests/gpu/ptx_machine/warp.h"

namespace moesaic::ptx {
namespace {

// Registers hold their bits, those of narrow types in the low bits with zeros above.

template <typename T>
T from_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  return static_cast<T>(bits);
}
template <typename T>
std::uint64_t to_bits(T value) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<std::uint32_t>(value);
  if constexpr (std::is_same_v<T, bool>) return value ? 1 : 0;
  return static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
}
template <>
std::uint64_t to_bits<bool>(bool value) {
  return value ? 1 : 0;
}
template <>
std::uint64_t to_bits<float>(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// out = operation(sources...), lane by lane, for operations without effects.
template <typename In, auto Function, int Sources>
void each_lane(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const std::uint64_t* const a = warp.slot(in.slots[1]);
  const std::uint64_t* const b = warp.slot(in.slots[Sources > 1 ? 2 : 1]);
  const std::uint64_t* const c = warp.slot(in.slots[Sources > 2 ? 3 : 1]);
  std::uint64_t* const out = warp.slot(in.slots[0]);
  const auto result = [&](int lane) {
    const In x = from_bits<In>(a[lane]);
    if constexpr (Sources == 1) return to_bits(Function(x));
    if constexpr (Sources == 2) return to_bits(Function(x, from_bits<In>(b[lane])));
    if constexpr (Sources == 3) {
      return to_bits(Function(x, from_bits<In>(b[lane]), from_bits<In>(c[lane])));
    }
  };
  if (lanes == 0xffffffff) {
    for (int lane = 0; lane < kWarpLanes; ++lane) out[lane] = result(lane);
  } else {
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      if ((lanes >> lane & 1) != 0) out[lane] = result(lane);
    }
  }
}

/// And how many operands stand in its line: slots.
struct Operation {
  Execute execute;
  int num_slots;
};
template <typename In, auto Function>
constexpr Operation kOne = {each_lane<In, Function, 1>, 2};
template <typename In, auto Function>
constexpr Operation kTwo = {each_lane<In, Function, 2>, 3};
template <typename In, auto Function>
constexpr Operation kThree = {each_lane<In, Function, 3>, 4};

/// The low and the high half of a register.
void take_halves(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const std::uint64_t whole = warp.slot(in.slots[2])[lane];
    warp.slot(in.slots[0])[lane] = whole & 0xffff;
    warp.slot(in.slots[1])[lane] = whole >> 16 & 0xffff;
  }
}

/// Some low bits of a in the place of those of b from a position on.
void insert_bits(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const auto source = [&](int slot) {
      return static_cast<std::uint32_t>(warp.slot(in.slots[slot])[lane]);
    };
    const std::uint32_t position = source(3) & 0xff;
    const std::uint32_t length = source(4) & 0xff;
    const std::uint64_t mask = ((std::uint64_t{1} << std::min(length, 32U)) - 1) << position;
    const std::uint64_t inserted = position < 32 ? std::uint64_t{source(1)} << position : 0;
    const auto bits = static_cast<std::uint32_t>(position < 32 ? mask : 0);
    warp.slot(in.slots[0])[lane] =
        (source(2) & ~bits) | (static_cast<std::uint32_t>(inserted) & bits);
  }
}

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using S32 = std::int32_t;
using U64 = std::uint64_t;
using S64 = std::int64_t;

constexpr auto kSame = [](auto a) { return a; };
constexpr auto kAdd = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };
constexpr auto kSubtract = [](auto a, auto b) { return static_cast<decltype(a)>(a - b); };
constexpr auto kMultiply = [](auto a, auto b) { return static_cast<decltype(a)>(a * b); };
constexpr auto kAnd = [](auto a, auto b) { return static_cast<decltype(a)>(a & b); };
constexpr auto kOr = [](auto a, auto b) { return static_cast<decltype(a)>(a | b); };
constexpr auto kXor = [](auto a, auto b) { return static_cast<decltype(a)>(a ^ b); };
constexpr auto kNot = [](auto a) { return static_cast<decltype(a)>(~a); };
constexpr auto kIsFalse = [](auto a) { return a == 0; };
constexpr auto kMinus = [](auto a) { return static_cast<decltype(a)>(-a); };
constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kUnequal = [](auto a, auto b) { return a != b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kLessOrEqual = [](auto a, auto b) { return a <= b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kGreaterOrEqual = [](auto a, auto b) { return a >= b; };
constexpr auto kNotGreater = [](float a, float b) { return !(a > b); };
constexpr auto kUnordered = [](float a, float b) { return std::isnan(a) || std::isnan(b); };
constexpr auto kOrdered = [](float a, float b) { return !std::isnan(a) && !std::isnan(b); };
constexpr auto kMin = [](auto a, auto b) { return b < a ? b : a; };
constexpr auto kMax = [](auto a, auto b) { return a < b ? b : a; };

/// The number of places is the second operand's low 32 bits; beyond the width nothing is left.
template <typename T>
constexpr auto kShiftLeft = [](T a, T b) {
  const auto places = static_cast<U32>(b);
  return places >= sizeof(T) * 8 ? T{0} : static_cast<T>(a << places);
};
template <typename T>
constexpr auto kShiftRight = [](T a, T b) {
  const U32 places = std::min(static_cast<U32>(b), static_cast<U32>(sizeof(T) * 8));
  if (places == sizeof(T) * 8) return static_cast<T>(a < 0 ? -1 : 0);
  return static_cast<T>(a >> places);
};

constexpr auto kCountOnes = [](U32 a) { return static_cast<U32>(std::popcount(a)); };
constexpr auto kCountZeros = [](U32 a) { return static_cast<U32>(std::countl_zero(a)); };

template <typename T>
using Wide =
    std::conditional_t<sizeof(T) == 2, U32, std::conditional_t<std::is_signed_v<T>, S64, U64>>;
template <typename T>
constexpr auto kMultiplyWide = [](U64 a, U64 b) {
  const auto product =
      static_cast<Wide<T>>(from_bits<T>(a)) * static_cast<Wide<T>>(from_bits<T>(b));
  return static_cast<U64>(product);
};

constexpr auto kMultiplyHigh = [](U16 a, U16 b) { return static_cast<U16>(U32{a} * b >> 16); };
constexpr auto kMultiplyAdd = [](auto a, auto b, auto c) { return a * b + c; };
constexpr auto kPermute = [](U32 a, U32 b, U32 select) {
  const U64 bytes = a | U64{b} << 32;
  U32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const U32 choice = select >> (4 * i) & 15;
    U32 byte = static_cast<U32>(bytes >> (8 * (choice & 7)) & 255);
    if ((choice & 8) != 0) byte = byte >= 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
};

// f32. Subnormal numbers are kept, but by instructions with .ftz. A NaN is the canonical one.
float number(float x) {
  return std::isnan(x) ? std::bit_cast<float>(0x7fffffffU) : x;
}
float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
constexpr auto kFma = [](float a, float b, float c) { return number(__builtin_fmaf(a, b, c)); };
constexpr auto kFlushedFma = [](float a, float b, float c) {
  return flushed(number(__builtin_fmaf(flushed(a), flushed(b), flushed(c))));
};
constexpr auto kFloatAdd = [](float a, float b) { return number(a + b); };
constexpr auto kFlushedAdd = [](float a, float b) {
  return flushed(number(flushed(a) + flushed(b)));
};
constexpr auto kFloatSubtract = [](float a, float b) { return number(a - b); };
constexpr auto kFloatMultiply = [](float a, float b) { return number(a * b); };
constexpr auto kFlushedMultiply = [](float a, float b) {
  return flushed(number(flushed(a) * flushed(b)));
};
constexpr auto kDivide = [](float a, float b) { return number(a / b); };
constexpr auto kToInteger = [](float a) {  // toward zero
  if (std::isnan(a)) return 0;
  if (a >= 0x1p31F) return INT32_MAX;
  return a <= -0x1p31F ? INT32_MIN : static_cast<S32>(a);
};

/// Two bf16, each rounded once; subnormal numbers are kept.
constexpr auto kPairFma = [](U32 a, U32 b, U32 c) {
  U32 result = 0;
  for (int half = 0; half < 2; ++half) {
    const auto value = [&](U32 pair) {
      return static_cast<double>(std::bit_cast<float>(pair >> (16 * half) << 16));
    };
    const auto product = value(a) * value(b);  // 16 bits
    const auto exact = product + value(c);
    const auto once = static_cast<float>(exact);
    if (value(c) != 0 && (exact - value(c) != product || once != exact)) {
      throw MachineError("fma.rn.bf16x2 is known where a f32 has the sum");
    }
    const U32 bits = std::bit_cast<U32>(once);
    const U32 even = (bits + 0x7fffU + (bits >> 16 & 1)) >> 16;
    result |= (std::isnan(exact) ? 0x7fffU : even) << (16 * half);
  }
  return result;
};

/// Two f32 to bf16, the first above.
constexpr auto kRoundPair = [](float high, float low) {
  const auto rounded = [](float value) {
    const U32 bits = std::bit_cast<U32>(value);
    return std::isnan(value) ? 0x7fffU : (bits + 0x7fffU + (bits >> 16 & 1)) >> 16;
  };
  return rounded(high) << 16 | rounded(low);
};

template <typename T>
constexpr auto kSelect =
    [](U64 a, U64 b, U64 predicate) { return U64{static_cast<T>((predicate & 1) != 0 ? a : b)}; };

template <typename To>
constexpr auto kConvert = [](auto value) { return static_cast<To>(value); };

constexpr auto kInWindow = [](U64 at) { return at | kSharedWindow; };
constexpr auto kOutOfWindow = [](U64 at) { return at & (kSharedWindow - 1); };

const std::unordered_map<std::string, Operation>& operations() {
  static const std::unordered_map<std::string, Operation> kOperations = {
      {"mov.u32", kOne<U32, kSame>},
      {"mov.b32", kOne<U32, kSame>},
      {"mov.f32", kOne<U32, kSame>},
      {"mov.u64", kOne<U64, kSame>},
      {"mov.b64", kOne<U64, kSame>},
      {"mov.b16", kOne<U16, kSame>},
      {"mov.u16", kOne<U16, kSame>},
      {"mov.pred", kOne<U64, kSame>},
      {"mov.b32 {}", {take_halves, 3}},
      {"cvta.to.global.u64", kOne<U64, kSame>},
      {"cvta.global.u64", kOne<U64, kSame>},
      {"cvta.shared.u64", kOne<U64, kInWindow>},
      {"cvta.to.shared.u64", kOne<U64, kOutOfWindow>},

      {"add.s32", kTwo<U32, kAdd>},
      {"add.u32", kTwo<U32, kAdd>},
      {"add.s16", kTwo<U16, kAdd>},
      {"add.s64", kTwo<U64, kAdd>},
      {"add.u64", kTwo<U64, kAdd>},
      {"sub.s16", kTwo<U16, kSubtract>},
      {"sub.s32", kTwo<U32, kSubtract>},
      {"sub.s64", kTwo<U64, kSubtract>},
      {"neg.s32", kOne<U32, kMinus>},
      {"mul.lo.s32", kTwo<U32, kMultiply>},
      {"mul.lo.s64", kTwo<U64, kMultiply>},
      {"mul.wide.s32", kTwo<U64, kMultiplyWide<S32>>},
      {"mul.wide.u32", kTwo<U64, kMultiplyWide<U32>>},
      {"mul.wide.u16", kTwo<U64, kMultiplyWide<U16>>},
      {"mul.lo.s16", kTwo<U16, kMultiply>},
      {"mul.hi.u16", kTwo<U16, kMultiplyHigh>},
      {"mad.lo.s32", kThree<U32, kMultiplyAdd>},
      {"mad.lo.s64", kThree<U64, kMultiplyAdd>},
      {"min.s32", kTwo<S32, kMin>},
      {"max.s32", kTwo<S32, kMax>},
      {"min.u32", kTwo<U32, kMin>},
      {"max.u32", kTwo<U32, kMax>},

      {"and.b32", kTwo<U32, kAnd>},
      {"and.b64", kTwo<U64, kAnd>},
      {"and.pred", kTwo<U64, kAnd>},
      {"and.b16", kTwo<U16, kAnd>},
      {"or.b32", kTwo<U32, kOr>},
      {"or.b64", kTwo<U64, kOr>},
      {"or.b16", kTwo<U16, kOr>},
      {"or.pred", kTwo<U64, kOr>},
      {"xor.b32", kTwo<U32, kXor>},
      {"not.b32", kOne<U32, kNot>},
      {"not.pred", kOne<U64, kIsFalse>},
      {"shl.b32", kTwo<U32, kShiftLeft<U32>>},
      {"shl.b16", kTwo<U16, kShiftLeft<U16>>},
      {"shl.b64", kTwo<U64, kShiftLeft<U64>>},
      {"shr.u32", kTwo<U32, kShiftRight<U32>>},
      {"shr.s32", kTwo<S32, kShiftRight<S32>>},
      {"shr.u16", kTwo<U16, kShiftRight<U16>>},
      {"shr.u64", kTwo<U64, kShiftRight<U64>>},
      {"shr.s64", kTwo<S64, kShiftRight<S64>>},
      {"bfi.b32", {insert_bits, 5}},
      {"prmt.b32", kThree<U32, kPermute>},
      {"popc.b32", kOne<U32, kCountOnes>},
      {"clz.b32", kOne<U32, kCountZeros>},
      {"selp.b32", kThree<U64, kSelect<U32>>},
      {"selp.f32", kThree<U64, kSelect<U32>>},
      {"selp.u32", kThree<U64, kSelect<U32>>},
      {"selp.b64", kThree<U64, kSelect<U64>>},
      {"selp.b16", kThree<U64, kSelect<U16>>},

      {"setp.eq.s32", kTwo<S32, kEqual>},
      {"setp.ne.s32", kTwo<S32, kUnequal>},
      {"setp.lt.s32", kTwo<S32, kLess>},
      {"setp.le.s32", kTwo<S32, kLessOrEqual>},
      {"setp.gt.s32", kTwo<S32, kGreater>},
      {"setp.ge.s32", kTwo<S32, kGreaterOrEqual>},
      {"setp.eq.b32", kTwo<U32, kEqual>},
      {"setp.ne.b32", kTwo<U32, kUnequal>},
      {"setp.lt.u32", kTwo<U32, kLess>},
      {"setp.gt.u32", kTwo<U32, kGreater>},
      {"setp.ge.u32", kTwo<U32, kGreaterOrEqual>},
      {"setp.le.u32", kTwo<U32, kLessOrEqual>},
      {"setp.eq.s16", kTwo<U16, kEqual>},
      {"setp.ne.s16", kTwo<U16, kUnequal>},
      {"setp.eq.b16", kTwo<U16, kEqual>},
      {"setp.eq.s64", kTwo<S64, kEqual>},
      {"setp.lt.f32", kTwo<float, kLess>},
      {"setp.gt.f32", kTwo<float, kGreater>},
      {"setp.eq.f32", kTwo<float, kEqual>},
      {"setp.neu.f32", kTwo<float, kUnequal>},
      {"setp.leu.f32", kTwo<float, kNotGreater>},
      {"setp.num.f32", kTwo<float, kOrdered>},
      {"setp.nan.f32", kTwo<float, kUnordered>},

      {"cvt.s64.s32", kOne<S32, kConvert<S64>>},
      {"cvt.u64.u32", kOne<U32, kConvert<U64>>},
      {"cvt.u32.u64", kOne<U64, kConvert<U32>>},
      {"cvt.u32.u16", kOne<U16, kConvert<U32>>},
      {"cvt.u16.u32", kOne<U32, kConvert<U16>>},
      {"cvt.u64.u16", kOne<U16, kConvert<U64>>},
      {"cvt.s64.s16", kOne<std::int16_t, kConvert<S64>>},
      {"cvt.rzi.s32.f32", kOne<float, kToInteger>},
      {"cvt.rn.bf16x2.f32", kTwo<float, kRoundPair>},

      {"add.rn.f32", kTwo<float, kFloatAdd>},
      {"add.f32", kTwo<float, kFloatAdd>},
      {"add.rn.ftz.f32", kTwo<float, kFlushedAdd>},
      {"sub.rn.f32", kTwo<float, kFloatSubtract>},
      {"mul.rn.f32", kTwo<float, kFloatMultiply>},
      {"mul.f32", kTwo<float, kFloatMultiply>},
      {"mul.rn.ftz.f32", kTwo<float, kFlushedMultiply>},
      {"fma.rn.f32", kThree<float, kFma>},
      {"fma.rn.ftz.f32", kThree<float, kFlushedFma>},
      {"div.rn.f32", kTwo<float, kDivide>},
      {"neg.f32", kOne<float, kMinus>},
      {"fma.rn.bf16x2", kThree<U32, kPairFma>},

      {"shfl.sync.bfly.b32", {exchange_lanes, 6}},
      {"shfl.sync.up.b32", {exchange_up, 6}},
      {"shfl.sync.idx.b32", {spread_lane, 6}},
      {"match.any.sync.b32", {match_lanes, 3}},
      {"bar.warp.sync", {meet_lanes, 1}},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", {multiply_bf16, 14}},
      {"mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1."
       "f32.ue4m3",
       {multiply_nvfp4, 20}},
      {"ldmatrix.sync.aligned.m8n8.x2.shared.b16", {load_matrices, 3}},
      {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", {load_matrices, 5}},
      {"cp.async.cg.shared.global", {begin_copy, 4}},
      {"cp.async.commit_group", {close_copies, 0}},
      {"cp.async.wait_group", {wait_for_copies, 1}}};
  return kOperations;
}

}  // namespace

bool set_operation(Instruction& in) {
  if (in.text == "bra" || in.text == "bra.uni") {
    in.control = Control::branch;
  } else if (in.text == "ret") {
    in.control = Control::leave;
  } else if (in.text == "bar.sync") {
    in.control = Control::barrier;
  } else if (const auto found = operations().find(in.text); found != operations().end()) {
    in.execute = found->second.execute;
    return in.num_slots == found->second.num_slots;
  } else {
    return set_memory_operation(in);
  }
  return true;
}

}  // namespace moesaic::ptx
