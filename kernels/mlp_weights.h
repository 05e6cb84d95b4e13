#pragma once

#include "kernels/packed_matrix.h"

namespace moesaic {

/// The matrices of one gated MLP: down(gating(gate(x), up(x))).
struct MlpWeights {
  PackedMatrix gate;  // [intermediate, hidden]
  PackedMatrix up;    // [intermediate, hidden], in the layout and order of gate
  PackedMatrix down;  // [hidden, intermediate]
};

}  // namespace moesaic
