// 3x3 convolutions with stride 1 of one client's images on one CPU core, with their gradients, and what is done to
// images between convolutions. Clients run side by side on several cores.
//
// Images are [n, height, width, channels], weights [taps, inputs, outputs]. Vectors run over channels, which is why their
// number must be a multiple of 32; height and width are multiples of 4.

#include <climits>

#include "winograd.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

extern "C" {

// Keep what is freed for the next use. Activations come and go by the megabyte; giving them back to the system each time
// costs a sixth of the time of a round in page faults.
void fedade_keep_freed_memory() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that it takes
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
#endif
}

// relu(conv(images) + bias + residual); weights are [taps, inputs, outputs], the residual may be null.
void fedade_convolution(const float* images, const float* weights, const float* bias, const float* residual, int relu,
                        long num_images, long height, long width, long inputs, long outputs, float* out) {
    Finish finish{bias, residual, nullptr, relu != 0};
    winograd({num_images, height, width}, images, nullptr, weights, finish, inputs, outputs, out);
}

// Mean and mean square of every image's channels, [2, images, channels]. Sums of 64 pixels are summed, which keeps errors
// of rounding small.
void fedade_channel_moments(const float* images, long num_images, long pixels, long channels, float* out) {
    constexpr long AT_ONCE = 64;
    for (long image = 0; image < num_images; ++image)
        for (long channel = 0; channel < channels; channel += LANES) {
            const float* from = images + image * pixels * channels + channel;
            Vector sum{}, squares{};
            for (long first = 0; first < pixels; first += AT_ONCE) {
                Vector part{}, part_squares{};
                for (long pixel = first; pixel < std::min(first + AT_ONCE, pixels); ++pixel) {
                    Vector value = load(from + pixel * channels);
                    part += value;
                    part_squares += value * value;
                }
                sum += part;
                squares += part_squares;
            }
            float count = static_cast<float>(pixels);
            store(out + image * channels + channel, sum / count);
            store(out + (num_images + image) * channels + channel, squares / count);
        }
}

// relu(images * scale + shift + residual), per channel; the residual may be null. Factors and summands of an image are
// `step` numbers after those of the image before.
void fedade_scaled(const float* images, const float* scale, const float* shift, const float* residual, int relu,
                   long step, long num_images, long pixels, long channels, float* out) {
    for (long image = 0; image < num_images; ++image)
        for (long pixel = 0; pixel < pixels; ++pixel)
            for (long channel = 0; channel < channels; channel += LANES) {
                long at = (image * pixels + pixel) * channels + channel, factor = image * step + channel;
                Vector value = load(images + at) * load(scale + factor) + load(shift + factor);
                if (residual) value += load(residual + at);
                store(out + at, relu ? (value < Vector{} ? Vector{} : value) : value);  // NaN stays NaN
            }
}

// Gradient of the images, to which `more` is added, which may be the result itself. Weights are [taps, outputs, inputs],
// last tap first. Gradients count where their gate, if any, is positive.
void fedade_image_gradient(const float* gradients, const float* gate, const float* weights, const float* more,
                           const float* more_gate, long num_images, long height, long width, long inputs, long outputs,
                           float* out) {
    Finish finish{nullptr, more, more_gate, false};
    winograd({num_images, height, width}, gradients, gate, weights, finish, outputs, inputs, out);
}

// Gradients of the weights, [taps, inputs, outputs], and of the bias, zero at first.
void fedade_weight_gradient(const float* images, const float* gradients, const float* gate, long num_images,
                            long height, long width, long inputs, long outputs, float* out, float* bias) {
    winograd_weight_gradient({num_images, height, width}, images, gradients, gate, inputs, outputs, out, bias);
}
}
