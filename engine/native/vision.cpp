/*
 * Images: PNG and JPEG files become embeddings by libmtmd, which is compiled from the package's own source. Only the vision
 * process (engine/vision.ts) calls this. Callers' files are parsed here and nowhere else: by stb_image with these two decoders
 * alone, into memory that is bounded before it begins.
 *
 * An addon of its own, ra-vision (`make native`, engine/native/build.ts), with libmtmd compiled into it: npm's libraries have none.
 * It calls the exported functions of whichever ggml node-llama-cpp's addon loaded; engine/llama/vision.ts uses it.
 */
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"
#include "mtmd.h"
#include "napi.h"

namespace {

// Bytes that the decoder of this thread may still allocate.
thread_local size_t budget = 0;

// Before each allocation of the decoder: its size. As wide as malloc's alignment, which what follows keeps.
constexpr size_t HEAD = alignof(std::max_align_t) > sizeof(size_t) ? alignof(std::max_align_t) : sizeof(size_t);

void * bounded_malloc(size_t size) {
    if (size > budget) return nullptr;
    auto * block = static_cast<char *>(std::malloc(size + HEAD));
    if (block == nullptr) return nullptr;
    std::memcpy(block, &size, sizeof size);
    budget -= size;
    return block + HEAD;
}

size_t size_of(const void * data) {
    size_t size;
    std::memcpy(&size, static_cast<const char *>(data) - HEAD, sizeof size);
    return size;
}

void bounded_free(void * data) {
    if (data == nullptr) return;
    budget += size_of(data);
    std::free(static_cast<char *>(data) - HEAD);
}

void * bounded_realloc(void * data, size_t size) {
    if (data == nullptr) return bounded_malloc(size);
    void * moved = bounded_malloc(size);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, data, std::min(size, size_of(data)));
    bounded_free(data);
    return moved;
}

} // namespace

#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_MALLOC(size) bounded_malloc(size)
#define STBI_REALLOC(data, size) bounded_realloc(data, size)
#define STBI_FREE(data) bounded_free(data)
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "stb/stb_image.h"
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

namespace {

// A decoder's memory: the file's compressed parts, and for each pixel the rows as they are inflated (8 bytes of 16-bit RGBA),
// the image in the file's own format (8) and twice in ours (4 and 3), or a progressive JPEG's coefficients and planes (9).
constexpr size_t BYTES_PER_PIXEL = 32;
// JPEG pads each side to whole units of at most 32 pixels.
constexpr size_t PAD = 64;
constexpr size_t BESIDES = 1 << 20;

// The last error that libmtmd logged while it loaded.
std::string last_error;

void remember(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR && text != nullptr) last_error.assign(text, std::min<size_t>(std::strlen(text), 300));
}

void forget(ggml_log_level, const char *, void *) {}

using Pixels = std::unique_ptr<unsigned char, void (*)(void *)>;

// Raised for what is wrong with a caller's file, apart from all other errors.
struct Undecodable : std::runtime_error {
    Undecodable() : std::runtime_error("undecodable") {}
};

// RGB, of exactly this size: whatever was decided by the header is what is decoded.
Pixels decoded(const std::vector<unsigned char> & file, int width, int height) {
    budget = BYTES_PER_PIXEL * (width + PAD) * (height + PAD) + 4 * file.size() + BESIDES;
    int x = 0, y = 0, n = 0;
    const int length = static_cast<int>(file.size());
    // The header is read again, since it is this decoder's view of it that counts.
    if (!stbi_info_from_memory(file.data(), length, &x, &y, &n) || x != width || y != height) throw Undecodable();
    Pixels pixels(stbi_load_from_memory(file.data(), length, &x, &y, &n, 3), stbi_image_free);
    if (!pixels || x != width || y != height) throw Undecodable();
    return pixels;
}

// Each pixel is the mean of the pixels that it covers.
std::vector<unsigned char> shrunk(const unsigned char * from, int width, int height, int toWidth, int toHeight) {
    std::vector<unsigned char> to(static_cast<size_t>(toWidth) * toHeight * 3);
    for (int y = 0; y < toHeight; y++) {
        const int y0 = static_cast<int>(static_cast<int64_t>(y) * height / toHeight);
        const int y1 = std::max(y0 + 1, static_cast<int>(static_cast<int64_t>(y + 1) * height / toHeight));
        for (int x = 0; x < toWidth; x++) {
            const int x0 = static_cast<int>(static_cast<int64_t>(x) * width / toWidth);
            const int x1 = std::max(x0 + 1, static_cast<int>(static_cast<int64_t>(x + 1) * width / toWidth));
            uint64_t sums[3] = {0, 0, 0};
            for (int v = y0; v < y1; v++) {
                for (int u = x0; u < x1; u++) {
                    for (int c = 0; c < 3; c++) sums[c] += from[(static_cast<size_t>(v) * width + u) * 3 + c];
                }
            }
            const uint64_t count = static_cast<uint64_t>(y1 - y0) * (x1 - x0);
            for (int c = 0; c < 3; c++) {
                to[(static_cast<size_t>(y) * toWidth + x) * 3 + c] = static_cast<unsigned char>((sums[c] + count / 2) / count);
            }
        }
    }
    return to;
}

// A projector, and the model that it is for, without its weights: libmtmd asks it for its vocabulary and its sizes.
struct Loaded {
    std::unique_ptr<llama_model, void (*)(llama_model *)> model{nullptr, llama_model_free};
    mtmd::context_ptr projector;
    // Numbers per token.
    size_t width = 0;
};
using Context = std::shared_ptr<const Loaded>;

// What libmtmd makes of one image: texts around its parts, and the parts.
mtmd::input_chunks_ptr chunks_of(const mtmd_context * context, const mtmd_bitmap * bitmap) {
    mtmd::input_chunks_ptr chunks(mtmd_input_chunks_init());
    const mtmd_input_part part = {nullptr, bitmap};
    const mtmd_input_part * parts[] = {&part};
    if (mtmd_tokenize_from_parts(context, chunks.get(), parts, 1, false) != 0) throw std::runtime_error("layout");
    return chunks;
}

class EncodeWorker : public Napi::AsyncWorker {
    public:
        EncodeWorker(Napi::Env env, Context context, std::vector<unsigned char> file, const int (&sizes)[4])
            : Napi::AsyncWorker(env, "RaEncode"),
              deferred(Napi::Promise::Deferred::New(env)),
              context(std::move(context)),
              file(std::move(file)),
              width(sizes[0]), height(sizes[1]), toWidth(sizes[2]), toHeight(sizes[3]) {}

        Napi::Promise promise() const { return deferred.Promise(); }

    protected:
        void Execute() override {
            try {
                run();
            } catch (const std::exception & error) {
                SetError(error.what());
            } catch (...) {
                SetError("encode");
            }
        }
        void OnOK() override {
            const Napi::HandleScope scope(Env());
            auto all = Napi::Array::New(Env(), embeddings.size());
            for (size_t i = 0; i < embeddings.size(); i++) {
                auto values = Napi::Float32Array::New(Env(), embeddings[i].size());
                std::memcpy(values.Data(), embeddings[i].data(), embeddings[i].size() * sizeof(float));
                all.Set(static_cast<uint32_t>(i), values);
            }
            deferred.Resolve(all);
        }
        void OnError(const Napi::Error & error) override { deferred.Reject(error.Value()); }

    private:
        void run() {
            mtmd::bitmap_ptr bitmap;
            {
                const Pixels pixels = decoded(file, width, height);
                const bool smaller = toWidth != width || toHeight != height;
                const auto less = smaller ? shrunk(pixels.get(), width, height, toWidth, toHeight) : std::vector<unsigned char>();
                bitmap.reset(mtmd_bitmap_init(toWidth, toHeight, smaller ? less.data() : pixels.get()));
            }
            const auto chunks = chunks_of(context->projector.get(), bitmap.get());
            for (size_t i = 0; i < mtmd_input_chunks_size(chunks.get()); i++) {
                const auto * chunk = mtmd_input_chunks_get(chunks.get(), i);
                if (mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_IMAGE) continue;
                if (mtmd_encode_chunk(context->projector.get(), chunk) != 0) throw std::runtime_error("encode");
                const float * values = mtmd_get_output_embd(context->projector.get());
                embeddings.emplace_back(values, values + mtmd_input_chunk_get_n_tokens(chunk) * context->width);
            }
        }

        Napi::Promise::Deferred deferred;
        Context context;
        const std::vector<unsigned char> file;
        const int width, height, toWidth, toHeight;
        std::vector<std::vector<float>> embeddings;
};

class RaVision : public Napi::ObjectWrap<RaVision> {
    public:
        // Path of the model, path of the projector, threads, the most tokens of an image where the projector has a choice, and
        // whether a GPU computes: the first that this process sees. Throws with the reason.
        explicit RaVision(const Napi::CallbackInfo & info) : Napi::ObjectWrap<RaVision>(info) {
            auto loaded = std::make_shared<Loaded>();
            auto model = llama_model_default_params();
            model.no_alloc = true;
            model.load_mode = LLAMA_LOAD_MODE_NONE;
            model.n_gpu_layers = 0;
            loaded->model.reset(llama_model_load_from_file(info[0].As<Napi::String>().Utf8Value().c_str(), model));
            if (!loaded->model) throw Napi::Error::New(info.Env(), "the model cannot be loaded");
            auto params = mtmd_context_params_default();
            params.use_gpu = info[4].As<Napi::Boolean>().Value();
            params.print_timings = false;
            params.n_threads = info[2].As<Napi::Number>().Int32Value();
            // A driver opens files at its first computation, which must come before the process is confined.
            params.warmup = params.use_gpu;
            params.image_max_tokens = info[3].As<Napi::Number>().Int32Value();
            last_error.clear();
            mtmd_log_set(remember, nullptr);
            const std::string path = info[1].As<Napi::String>().Utf8Value();
            loaded->projector.reset(mtmd_init_from_file(path.c_str(), loaded->model.get(), params));
            // From here on lines may be about callers' images.
            mtmd_log_set(forget, nullptr);
            if (!loaded->projector) {
                throw Napi::Error::New(info.Env(), last_error.empty() ? "the projector cannot be loaded" : last_error);
            }
            if (!mtmd_support_vision(loaded->projector.get())) {
                throw Napi::Error::New(info.Env(), "the projector is not for images");
            }
            loaded->width = llama_model_n_embd_inp(loaded->model.get());
            context = std::move(loaded);
        }

        Napi::Value nonCausal(const Napi::CallbackInfo & info) {
            return Napi::Boolean::New(info.Env(), mtmd_decode_use_non_causal(context->projector.get(), nullptr));
        }
        // Numbers of a token's embedding.
        Napi::Value width(const Napi::CallbackInfo & info) {
            return Napi::Number::New(info.Env(), static_cast<double>(context->width));
        }

        // Of an image of this width and height: a list of texts' tokens (Int32Array) and of parts: `tokens`, `positions`, and
        // `columns` where positions have two dimensions, else 0. No pixel is needed.
        Napi::Value layout(const Napi::CallbackInfo & info) {
            const Napi::Env env = info.Env();
            try {
                const mtmd::bitmap_ptr bitmap(mtmd_bitmap_init(number(info, 0), number(info, 1), nullptr));
                const auto chunks = chunks_of(context->projector.get(), bitmap.get());
                const size_t count = mtmd_input_chunks_size(chunks.get());
                auto all = Napi::Array::New(env, count);
                for (size_t i = 0; i < count; i++) {
                    all.Set(static_cast<uint32_t>(i), described(env, mtmd_input_chunks_get(chunks.get(), i)));
                }
                return all;
            } catch (const std::exception & error) {
                throw Napi::Error::New(env, error.what());
            }
        }

        // File, its width and height by its header, and the width and height that it is shrunk to. Resolves with a Float32Array
        // for each part of the layout. Rejects with `undecodable` for what is wrong with the file.
        Napi::Value encode(const Napi::CallbackInfo & info) {
            const auto bytes = info[0].As<Napi::Uint8Array>();
            const int sizes[4] = {number(info, 1), number(info, 2), number(info, 3), number(info, 4)};
            if (bytes.ByteLength() > static_cast<size_t>(std::numeric_limits<int>::max())) {
                throw Napi::RangeError::New(info.Env(), "bytes");
            }
            std::vector<unsigned char> file(bytes.Data(), bytes.Data() + bytes.ByteLength());
            auto * worker = new EncodeWorker(info.Env(), context, std::move(file), sizes);
            const auto promise = worker->promise();
            worker->Queue();
            return promise;
        }

    private:
        static int number(const Napi::CallbackInfo & info, size_t at) { return info[at].As<Napi::Number>().Int32Value(); }

        Napi::Value described(Napi::Env env, const mtmd_input_chunk * chunk) const {
            size_t count = mtmd_input_chunk_get_n_tokens(chunk);
            if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
                const llama_token * tokens = mtmd_input_chunk_get_tokens_text(chunk, &count);
                auto text = Napi::Int32Array::New(env, count);
                std::memcpy(text.Data(), tokens, count * sizeof(int32_t));
                return text;
            }
            const auto * image = mtmd_input_chunk_get_tokens_image(chunk);
            size_t columns = 0;
            if (mtmd_decode_use_mrope(context->projector.get())) {
                // The second row begins where the vertical position moves.
                columns = count;
                for (size_t i = 1; i < count; i++) {
                    if (mtmd_image_tokens_get_decoder_pos(image, 0, i).y == 0) continue;
                    columns = i;
                    break;
                }
            }
            auto part = Napi::Object::New(env);
            part.Set("tokens", Napi::Number::New(env, static_cast<double>(count)));
            part.Set("positions", Napi::Number::New(env, mtmd_input_chunk_get_n_pos(chunk)));
            part.Set("columns", Napi::Number::New(env, static_cast<double>(columns)));
            return part;
        }

        Context context;
};

} // namespace

void raSandboxInit(Napi::Object);

namespace {

Napi::Object init(Napi::Env env, Napi::Object exports) {
    exports.Set("raSources", Napi::String::New(env, RA_SOURCES));
    exports.Set("RaVision", RaVision::DefineClass(env, "RaVision", {
        RaVision::InstanceAccessor<&RaVision::nonCausal>("nonCausal"),
        RaVision::InstanceAccessor<&RaVision::width>("width"),
        RaVision::InstanceMethod<&RaVision::layout>("layout"),
        RaVision::InstanceMethod<&RaVision::encode>("encode"),
    }));
    raSandboxInit(exports);
    return exports;
}

} // namespace

NODE_API_MODULE(ra_vision, init)
