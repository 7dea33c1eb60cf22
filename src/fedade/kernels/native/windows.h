// Convolutions of any size and stride: the inputs of an output, side by side in one row.

#pragma once

#include "products.h"

namespace {

constexpr long PIXELS = 64;  // outputs at a time

struct Window {
    long images, height, width, size, stride;

    long out_height() const { return (height - 1) / stride + 1; }
    long out_width() const { return (width - 1) / stride + 1; }
    long count() const { return images * out_height() * out_width(); }
    long taps() const { return size * size; }
};

inline long padded(long depth) { return (depth + ROWS - 1) / ROWS * ROWS; }

// Calls visit(output, first tap, pixel, count) for every row of taps that lies within the image: `count` pixels that
// stand side by side in memory.
template <typename Visit>
void for_each_run(const Window& window, long first, long outputs, Visit visit) {
    long column = first % window.out_width(), row = first / window.out_width() % window.out_height();
    long image = first / window.out_width() / window.out_height();
    for (long t = 0; t < outputs; ++t) {
        long top = row * window.stride - window.size / 2, left = column * window.stride - window.size / 2;
        long skipped = std::max(0L, -left), end = std::min(window.size, window.width - left);
        for (long i = std::max(0L, -top); i < std::min(window.size, window.height - top); ++i)
            visit(t, i * window.size + skipped, (image * window.height + top + i) * window.width + left + skipped,
                  end - skipped);
        if (++column == window.out_width()) column = 0, ++row;
        if (row == window.out_height()) row = 0, ++image;
    }
}

// [output, taps x inputs]
void copy_windows(const Window& window, const float* images, long inputs, long first, long count, float* out) {
    long row = padded(window.taps() * inputs);
    std::memset(out, 0, count * row * sizeof(float));
    for_each_run(window, first, count, [=](long t, long tap, long pixel, long pixels) {
        const float* from = images + pixel * inputs;
        float* to = out + t * row + tap * inputs;
        for (long k = 0; k < pixels * inputs; ++k) to[k] = from[k];
    });
}

// [output, channel], where their gate is positive
void copy_gated(const float* gradients, const float* gate, long channels, long first, long count, float* out,
                float* bias) {
    for (long t = 0; t < count; ++t)
        for (long c = 0; c < channels; c += LANES) {
            long at = (first + t) * channels + c;
            Vector value = gated(gradients, gate, at);
            store(out + t * channels + c, value);
            if (bias) store(bias + c, load(bias + c) + value);
        }
}

float* in_panels(const float* matrix, long depth, long columns) {
    float* out = right_scratch.at_least(depth * columns);
    for (long k = 0; k < depth; ++k)
        for (long c = 0; c < columns; c += LANES)
            store(out + in_panels(k, c, depth), load(matrix + k * columns + c));
    return out;
}

void windowed(const Window& window, const float* images, const float* weights, const Finish& finish, long inputs,
              long outputs, float* out) {
    long depth = window.taps() * inputs;
    const float* right = in_panels(weights, depth, outputs);
    float* left = left_scratch.at_least(PIXELS * padded(depth));
    float* sums = sums_scratch.at_least(PIXELS * outputs);
    for (long first = 0; first < window.count(); first += PIXELS) {
        long count = std::min(PIXELS, window.count() - first);
        copy_windows(window, images, inputs, first, count, left);
        product(left, padded(depth), right, sums, count, depth, outputs);
        for (long t = 0; t < count; ++t)
            for (long c = 0; c < outputs; c += LANES) {
                long at = (first + t) * outputs + c;
                store(out + at, finish(load(sums + t * outputs + c), at, c));
            }
    }
}

void windowed_weight_gradient(const Window& window, const float* images, const float* gradients, const float* gate,
                              long inputs, long outputs, float* out, float* bias) {
    long depth = window.taps() * inputs;
    float* left = left_scratch.at_least(PIXELS * padded(depth));
    float* right = right_scratch.at_least(PIXELS * outputs);
    float* sums = sums_scratch.at_least(padded(depth) * outputs);
    std::fill_n(sums, padded(depth) * outputs, 0.f);
    for (long first = 0; first < window.count(); first += PIXELS) {
        long count = std::min(PIXELS, window.count() - first);
        copy_windows(window, images, inputs, first, count, left);
        copy_gated(gradients, gate, outputs, first, count, right, bias);
        accumulate(left, right, sums, count, padded(depth), outputs);
    }
    std::memcpy(out, sums, depth * outputs * sizeof(float));
}

// Weights are [outputs, taps x inputs].
void windowed_image_gradient(const Window& window, const float* gradients, const float* gate, const float* weights,
                             const Finish& finish, long inputs, long outputs, float* out) {
    long depth = window.taps() * inputs;
    const float* right = in_panels(weights, outputs, depth);
    float* left = left_scratch.at_least(PIXELS * outputs);
    float* rows = sums_scratch.at_least(PIXELS * depth);
    for (long at = 0; at < window.images * window.height * window.width * inputs; at += LANES)
        store(out + at, finish(Vector{}, at, at % inputs));
    for (long first = 0; first < window.count(); first += PIXELS) {
        long count = std::min(PIXELS, window.count() - first);
        copy_gated(gradients, gate, outputs, first, count, left, nullptr);
        product(left, outputs, right, rows, count, outputs, depth);
        for_each_run(window, first, count, [&](long t, long tap, long pixel, long pixels) {
            const float* from = rows + t * depth + tap * inputs;
            float* to = out + pixel * inputs;
            for (long c = 0; c < pixels * inputs; c += LANES) store(to + c, load(to + c) + load(from + c));
        });
    }
}

}  // namespace
