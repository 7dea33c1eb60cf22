// Vectors over channels, scratch memory, and the two products that every convolution here is made of.

#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace {

#ifdef __AVX512F__
constexpr long LANES = 16, ROWS = 8;  // 16 of 32 registers hold a block of ROWS x 2 vectors
#else
constexpr long LANES = 8, ROWS = 4;
#endif
constexpr long PANEL = 2 * LANES;  // columns of a block
constexpr long PLANES = 36;        // of a transformed tile: 6x6

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }

// A value that counts where its gate, if there is one, is positive.
inline Vector gated(const float* from, const float* gate, long at) {
    Vector value = load(from + at);
    return gate ? (load(gate + at) > Vector{} ? value : Vector{}) : value;
}

// Scratch memory of a thread, kept from call to call: fresh memory costs a page fault every 4 kB.
class Scratch {
  public:
    ~Scratch() { std::free(memory); }

    float* at_least(long count) {
        if (count > size) {
            std::free(memory);
            long bytes = (count * static_cast<long>(sizeof(float)) + 63) / 64 * 64;
            memory = static_cast<float*>(std::aligned_alloc(64, bytes));
            if (!memory) std::abort();
            std::memset(memory, 0, bytes);
            size = count;
        }
        return memory;
    }

  private:
    float* memory = nullptr;
    long size = 0;
};

thread_local Scratch left_scratch, right_scratch, sums_scratch;

// out[row, column] = left[row, k] right[k, column]; right comes in panels, and rows in multiples of ROWS.
void product(const float* left, long stride, const float* right, float* out, long rows, long depth, long columns) {
    for (long c = 0; c < columns; c += PANEL, right += depth * PANEL)
        for (long t = 0; t < rows; t += ROWS) {
            Vector sum[ROWS][2] = {};
            const float* block = left + t * stride;
            for (long k = 0; k < depth; ++k) {
                Vector first = load(right + k * PANEL), second = load(right + k * PANEL + LANES);
#pragma GCC unroll 8
                for (long r = 0; r < ROWS; ++r) {
                    float value = block[r * stride + k];
                    sum[r][0] += value * first;
                    sum[r][1] += value * second;
                }
            }
            for (long r = 0; r < ROWS; ++r)
                for (long v = 0; v < 2; ++v) store(out + (t + r) * columns + c + v * LANES, sum[r][v]);
        }
}

// out[k, column] += left[row, k] right[row, column]; k comes in multiples of ROWS.
void accumulate(const float* left, const float* right, float* out, long rows, long depth, long columns) {
    for (long c = 0; c < columns; c += PANEL)
        for (long k = 0; k < depth; k += ROWS) {
            Vector sum[ROWS][2];
            for (long r = 0; r < ROWS; ++r)
                for (long v = 0; v < 2; ++v) sum[r][v] = load(out + (k + r) * columns + c + v * LANES);
            for (long t = 0; t < rows; ++t) {
                Vector first = load(right + t * columns + c), second = load(right + t * columns + c + LANES);
#pragma GCC unroll 8
                for (long r = 0; r < ROWS; ++r) {
                    float value = left[t * depth + k + r];
                    sum[r][0] += value * first;
                    sum[r][1] += value * second;
                }
            }
            for (long r = 0; r < ROWS; ++r)
                for (long v = 0; v < 2; ++v) store(out + (k + r) * columns + c + v * LANES, sum[r][v]);
        }
}

// The place of [k, column] among panels.
inline long in_panels(long k, long column, long depth) { return (column / PANEL * depth + k) * PANEL + column % PANEL; }

// What is added to a convolution's sums, and what becomes of them.
struct Finish {
    const float* bias;
    const float* residual;
    const float* gate;  // of the residual, which counts where this is positive
    bool relu;

    Vector operator()(Vector value, long at, long channel) const {
        if (bias) value += load(bias + channel);
        if (residual) value += gated(residual, gate, at);
        return relu ? (value < Vector{} ? Vector{} : value) : value;  // NaN stays NaN
    }
};

}  // namespace
