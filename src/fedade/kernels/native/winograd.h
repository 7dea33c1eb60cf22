// 3x3 convolutions with stride 1 by Winograd's F(4x4, 3x3): 36 products where 144 are usual (Lavin and Gray, "Fast
// algorithms for convolutional neural networks", 2016). A tile is 6x6 inputs that give 4x4 outputs.

#pragma once

#include "products.h"

namespace {

struct Tiles {
    long images, height, width;

    long in_image() const { return height / 4 * (width / 4); }
    long count() const { return images * in_image(); }
};

struct Tile {
    long height, width, image, top, left;

    Tile(const Tiles& tiles, long number)
        : height(tiles.height),
          width(tiles.width),
          image(number / tiles.in_image()),
          top(number % tiles.in_image() / (width / 4) * 4),
          left(number % (width / 4) * 4) {}

    // The place of its output (i, j); -1 and 4 are its margins, which may lie outside of the image.
    long pixel(long i, long j) const { return (image * height + top + i) * width + left + j; }
    bool inside(long i, long j) const {
        return top + i >= 0 && top + i < height && left + j >= 0 && left + j < width;
    }
};

constexpr long TILES = 48;  // at a time: few enough for the second-level cache, so many that weights are read seldom

// One vector between planes keeps a tile's 36 from falling on the same cache sets.
inline long plane(long channels) { return TILES * channels + LANES; }

inline void input_transform(const Vector d[6], Vector out[6]) {
    Vector a = d[4] - 4.f * d[2], b = d[3] - 4.f * d[1], c = d[4] - d[2], e = 2.f * (d[3] - d[1]);
    out[0] = 4.f * d[0] - 5.f * d[2] + d[4];
    out[1] = a + b;
    out[2] = a - b;
    out[3] = c + e;
    out[4] = c - e;
    out[5] = 4.f * d[1] - 5.f * d[3] + d[5];
}

inline void output_transform(const Vector m[6], Vector out[4]) {
    Vector a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    out[0] = m[0] + a + c;
    out[1] = b + 2.f * e;
    out[2] = a + 4.f * c;
    out[3] = b + 8.f * e + m[5];
}

inline void weight_transform(const Vector w[3], Vector out[6]) {
    Vector a = (w[0] + w[2]) * (-1.f / 6), b = w[1] * (-1.f / 6), c = w[0] * (1.f / 24) + w[2] * (1.f / 6);
    Vector e = w[1] * (1.f / 12);
    out[0] = w[0] * (1.f / 4);
    out[1] = a + b;
    out[2] = a - b;
    out[3] = c + e;
    out[4] = c - e;
    out[5] = w[2];
}

// The transposes of the last two

inline void output_transposed(const Vector g[4], Vector out[6]) {
    Vector a = g[0] + g[2], b = g[1] + g[3], c = g[0] + 4.f * g[2], e = 2.f * g[1] + 8.f * g[3];
    out[0] = g[0];
    out[1] = a + b;
    out[2] = a - b;
    out[3] = c + e;
    out[4] = c - e;
    out[5] = g[3];
}

inline void weight_transposed(const Vector u[6], Vector out[3]) {
    Vector a = (u[1] + u[2]) * (-1.f / 6), b = (u[1] - u[2]) * (-1.f / 6), c = u[3] + u[4], e = u[3] - u[4];
    out[0] = u[0] * (1.f / 4) + a + c * (1.f / 24);
    out[1] = b + e * (1.f / 12);
    out[2] = a + c * (1.f / 6) + u[5];
}

// Transforms the rows, then the columns of a square: from(i, j) gives its vectors, to(i, j, vector) takes the result.
template <int FROM, int TO, typename Transform, typename From, typename To>
inline __attribute__((always_inline)) void both_ways(Transform transform, From from, To to) {
    Vector rows[TO][FROM], line[FROM], done[TO];
#pragma GCC unroll 6
    for (int i = 0; i < FROM; ++i) {
#pragma GCC unroll 6
        for (int j = 0; j < FROM; ++j) line[j] = from(i, j);
        transform(line, done);
#pragma GCC unroll 6
        for (int j = 0; j < TO; ++j) rows[j][i] = done[j];
    }
#pragma GCC unroll 6
    for (int j = 0; j < TO; ++j) {
        transform(rows[j], done);
#pragma GCC unroll 6
        for (int i = 0; i < TO; ++i) to(i, j, done[i]);
    }
}

// As [36, outputs / panel, inputs, panel]
float* transformed_weights(const float* weights, long inputs, long outputs) {
    float* out = right_scratch.at_least(PLANES * inputs * outputs);
    for (long k = 0; k < inputs; ++k)
        for (long c = 0; c < outputs; c += LANES)
            both_ways<3, 6>(
                weight_transform, [=](int i, int j) { return load(weights + ((3 * i + j) * inputs + k) * outputs + c); },
                [=](int i, int j, Vector value) {
                    store(out + (6 * i + j) * inputs * outputs + in_panels(k, c, inputs), value);
                });
    return out;
}

// Patches of inputs, as [36, tile, channel]; values count where their gate is positive, or without a gate.
void transform_inputs(const Tiles& tiles, const float* images, const float* gate, long channels, long first, long count,
                      float* out) {
    for (long t = 0; t < count; ++t) {
        Tile tile(tiles, first + t);
        for (long c = 0; c < channels; c += LANES)
            both_ways<6, 6>(
                input_transform,
                [=](int i, int j) {
                    if (!tile.inside(i - 1, j - 1)) return Vector{};
                    return gated(images, gate, tile.pixel(i - 1, j - 1) * channels + c);
                },
                [=](int i, int j, Vector value) {
                    store(out + (6 * i + j) * plane(channels) + t * channels + c, value);
                });
    }
}

void winograd(const Tiles& tiles, const float* images, const float* gate, const float* weights, const Finish& finish,
              long inputs, long outputs, float* out) {
    const float* right = transformed_weights(weights, inputs, outputs);
    float* left = left_scratch.at_least(PLANES * plane(inputs));
    float* sums = sums_scratch.at_least(PLANES * plane(outputs));
    for (long first = 0; first < tiles.count(); first += TILES) {
        long count = std::min(TILES, tiles.count() - first);
        transform_inputs(tiles, images, gate, inputs, first, count, left);
        for (long p = 0; p < PLANES; ++p)
            product(left + p * plane(inputs), inputs, right + p * inputs * outputs,
                    sums + p * plane(outputs), count, inputs, outputs);
        for (long t = 0; t < count; ++t) {
            Tile tile(tiles, first + t);
            for (long c = 0; c < outputs; c += LANES)
                both_ways<6, 4>(
                    output_transform,
                    [=](int i, int j) { return load(sums + (6 * i + j) * plane(outputs) + t * outputs + c); },
                    [=](int i, int j, Vector value) {
                        long at = tile.pixel(i, j) * outputs + c;
                        store(out + at, finish(value, at, c));
                    });
        }
    }
}

void winograd_weight_gradient(const Tiles& tiles, const float* images, const float* gradients, const float* gate,
                              long inputs, long outputs, float* out, float* bias) {
    float* left = left_scratch.at_least(PLANES * plane(inputs));
    float* right = right_scratch.at_least(PLANES * plane(outputs));
    float* sums = sums_scratch.at_least(PLANES * inputs * outputs);
    std::fill_n(sums, PLANES * inputs * outputs, 0.f);
    for (long first = 0; first < tiles.count(); first += TILES) {
        long count = std::min(TILES, tiles.count() - first);
        transform_inputs(tiles, images, nullptr, inputs, first, count, left);
        for (long t = 0; t < count; ++t) {
            Tile tile(tiles, first + t);
            for (long c = 0; c < outputs; c += LANES) {
                Vector sum = load(bias + c);
                both_ways<4, 6>(
                    output_transposed,
                    [&](int i, int j) {
                        Vector value = gated(gradients, gate, tile.pixel(i, j) * outputs + c);
                        sum += value;
                        return value;
                    },
                    [=](int i, int j, Vector value) {
                        store(right + (6 * i + j) * plane(outputs) + t * outputs + c, value);
                    });
                store(bias + c, sum);
            }
        }
        for (long p = 0; p < PLANES; ++p)
            accumulate(left + p * plane(inputs), right + p * plane(outputs),
                       sums + p * inputs * outputs, count, inputs, outputs);
    }
    for (long k = 0; k < inputs; ++k)
        for (long c = 0; c < outputs; c += LANES)
            both_ways<6, 3>(
                weight_transposed,
                [=](int i, int j) { return load(sums + ((6 * i + j) * inputs + k) * outputs + c); },
                [=](int i, int j, Vector value) { store(out + ((3 * i + j) * inputs + k) * outputs + c, value); });
}

}  // namespace
