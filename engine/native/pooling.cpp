/*
 * Vectors of whole inputs (llama.cpp's pooling: mean, cls, last), and scores of pairs (rank). One decode has many inputs, each a
 * sequence of its own. node-llama-cpp's own context for this takes one input at a time and reserves memory for a whole context of each
 * sequence; this one has one memory that all inputs of a decode share (`kv_unified`), and it is cleared before each.
 *
 * Part of ra-engine, the addon of next-token.cpp; engine/llama/pooling.ts uses it.
 */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "llama.h"
#include "napi.h"

#include "AddonContext.h"
#include "globals/addonProgress.h"
#include "AddonModel.h"

// Of next-token.cpp.
ggml_threadpool * raThreadpool(int32_t threads);

namespace {

class RaPooling : public Napi::ObjectWrap<RaPooling> {
    public:
        // The addon's model, tokens of a decode, inputs of a decode, threads, flash attention (-1: as llama.cpp finds, 0, 1), whether
        // scores are wanted in place of vectors.
        explicit RaPooling(const Napi::CallbackInfo & info) : Napi::ObjectWrap<RaPooling>(info) {
            const auto owner = info[0].As<Napi::Object>();
            const auto * model = Napi::ObjectWrap<AddonModel>::Unwrap(owner)->model;
            const uint32_t tokens = info[1].As<Napi::Number>().Uint32Value();
            inputs = info[2].As<Napi::Number>().Uint32Value();
            const int32_t threads = info[3].As<Napi::Number>().Int32Value();
            ranks = info[5].As<Napi::Boolean>().Value();
            auto params = llama_context_default_params();
            params.n_ctx = params.n_batch = params.n_ubatch = tokens;
            params.n_seq_max = inputs;
            params.n_threads = params.n_threads_batch = threads;
            params.embeddings = true;
            params.kv_unified = true;
            params.no_perf = true;
            params.pooling_type = ranks ? LLAMA_POOLING_TYPE_RANK : LLAMA_POOLING_TYPE_UNSPECIFIED;
            params.flash_attn_type = static_cast<llama_flash_attn_type>(info[4].As<Napi::Number>().Int32Value());
            context = llama_init_from_model(const_cast<llama_model *>(model), params);
            if (context == nullptr) throw Napi::Error::New(info.Env(), "there is no memory for a decode");
            if (auto * pool = raThreadpool(threads)) llama_attach_threadpool(context, pool, pool);
            held = Napi::Persistent(owner);
            width = ranks ? 1 : static_cast<size_t>(llama_model_n_embd_out(model));
        }
        ~RaPooling() override { free(); }

        static Napi::Function define(Napi::Env env) {
            return DefineClass(env, "RaPooling", {
                InstanceAccessor<&RaPooling::get_width>("width"),
                InstanceMethod<&RaPooling::decode>("decode"),
                InstanceMethod<&RaPooling::clear>("clear"),
                InstanceMethod<&RaPooling::dispose>("dispose"),
            });
        }

    private:
        friend class PoolingWorker;

        Napi::Value get_width(const Napi::CallbackInfo & info) { return Napi::Number::New(info.Env(), static_cast<double>(width)); }
        Napi::Value decode(const Napi::CallbackInfo & info);

        // Writes zeros over what the last decode left. Not during a decode.
        void clear(const Napi::CallbackInfo &) {
            auto * memory = context == nullptr ? nullptr : llama_get_memory(context);
            if (memory != nullptr) llama_memory_clear(memory, true);
        }
        // Not during a decode. Idempotent.
        void dispose(const Napi::CallbackInfo &) { free(); }

        void free() {
            if (context != nullptr) llama_free(context);
            context = nullptr;
        }

        llama_context * context = nullptr;
        Napi::ObjectReference held;
        uint32_t inputs = 0;
        bool ranks = false;
        size_t width = 0;
};

// The vector at length 1, or zeros where it has none. What is no number stays none, which the caller sees.
void unit(const float * from, float * to, size_t width) {
    double sum = 0;
    for (size_t i = 0; i < width; i++) sum += static_cast<double>(from[i]) * from[i];
    const double scale = sum > 0 || std::isnan(sum) ? 1 / std::sqrt(sum) : 0;
    for (size_t i = 0; i < width; i++) to[i] = static_cast<float>(from[i] * scale);
}

class PoolingWorker : public Napi::AsyncWorker {
    public:
        // The tokens of all inputs, one after another, and the length of each.
        explicit PoolingWorker(const Napi::CallbackInfo & info, RaPooling * pooling)
            : Napi::AsyncWorker(info.Env(), "RaPooling"), deferred(Napi::Promise::Deferred::New(info.Env())), pooling(pooling) {
            const auto given = info[0].As<Napi::Uint32Array>();
            const auto lengths = info[1].As<Napi::Uint32Array>();
            const size_t count = lengths.ElementLength();
            size_t sum = 0;
            for (size_t i = 0; i < count; i++) {
                if (lengths[i] == 0) throw Napi::RangeError::New(info.Env(), "inputs");
                sum += lengths[i];
            }
            if (pooling->context == nullptr || count == 0 || count > pooling->inputs || sum != given.ElementLength()
                || sum > llama_n_ubatch(pooling->context)) throw Napi::RangeError::New(info.Env(), "inputs");
            tokens.assign(given.Data(), given.Data() + sum);
            positions.resize(sum);
            ids.resize(count);
            sequences.resize(sum);
            for (size_t i = 0, at = 0; i < count; i++) {
                ids[i] = static_cast<llama_seq_id>(i);
                for (uint32_t position = 0; position < lengths[i]; position++, at++) {
                    positions[at] = static_cast<llama_pos>(position);
                    sequences[at] = &ids[i];
                }
            }
            counts.assign(sum, 1);
            wanted.assign(sum, 1);
            values.resize(count * pooling->width);
            pooling->Ref();
        }
        ~PoolingWorker() override {
            std::fill(tokens.begin(), tokens.end(), 0);
            pooling->Unref();
        }

        Napi::Promise promise() const { return deferred.Promise(); }

    protected:
        // With the message that engine/scheduler/faults.ts knows from the addon's own decode.
        void Execute() override {
            try {
                auto * context = pooling->context;
                auto * memory = llama_get_memory(context);
                if (memory != nullptr) llama_memory_clear(memory, false);
                llama_batch batch{};
                batch.n_tokens = static_cast<int32_t>(tokens.size());
                batch.token = tokens.data();
                batch.pos = positions.data();
                batch.n_seq_id = counts.data();
                batch.seq_id = sequences.data();
                batch.logits = wanted.data();
                const int result = llama_decode(context, batch);
                llama_synchronize(context);
                if (result != 0) {
                    SetError("Eval has failed");
                    return;
                }
                for (size_t i = 0; i < ids.size(); i++) {
                    const float * found = llama_get_embeddings_seq(context, ids[i]);
                    if (found == nullptr) {
                        SetError("Eval has failed");
                        return;
                    }
                    float * to = values.data() + i * pooling->width;
                    if (pooling->ranks) *to = *found;
                    else unit(found, to, pooling->width);
                }
            } catch (const std::exception &) {
                SetError("Eval has failed");
            }
        }

        void OnOK() override {
            auto made = Napi::Float32Array::New(Env(), values.size());
            std::copy(values.begin(), values.end(), made.Data());
            deferred.Resolve(made);
        }
        void OnError(const Napi::Error & error) override { deferred.Reject(error.Value()); }

    private:
        Napi::Promise::Deferred deferred;
        RaPooling * pooling;
        std::vector<llama_token> tokens;
        std::vector<llama_pos> positions;
        std::vector<llama_seq_id> ids;
        std::vector<llama_seq_id *> sequences;
        std::vector<int32_t> counts;
        std::vector<int8_t> wanted;
        std::vector<float> values;
};

Napi::Value RaPooling::decode(const Napi::CallbackInfo & info) {
    auto * worker = new PoolingWorker(info, this);
    const auto promise = worker->promise();
    worker->Queue();
    return promise;
}

} // namespace

// Called by init in next-token.cpp.
void raPoolingInit(Napi::Object exports) {
    exports.Set("RaPooling", RaPooling::define(exports.Env()));
}
