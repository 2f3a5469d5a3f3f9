/*
 * Decodes of embeddings, which are parts of images, in place of tokens. The addon's own batch has tokens only.
 *
 * Part of ra-engine, the addon of next-token.cpp; engine/llama/addon.ts uses it.
 */
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"
#include "napi.h"

#include "AddonContext.h"

namespace {

// Positions of an embedding where a model has them in several dimensions.
constexpr size_t DIMENSIONS = 4;

class EmbeddingsWorker : public Napi::AsyncWorker {
    public:
        // Context, sequence, the first position of the image, the index of the first embedding within it, its columns (0: the
        // positions have one dimension), whether all embeddings attend to each other, and the embeddings, which stay the
        // caller's and unchanged until this settles.
        explicit EmbeddingsWorker(const Napi::CallbackInfo & info)
            : Napi::AsyncWorker(info.Env(), "RaEmbeddings"),
              deferred(Napi::Promise::Deferred::New(info.Env())),
              context(Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>())),
              sequence(info[1].As<Napi::Number>().Int32Value()),
              nonCausal(info[5].As<Napi::Boolean>().Value()) {
            auto values = info[6].As<Napi::Float32Array>();
            const size_t width = llama_model_n_embd_inp(llama_get_model(context->ctx));
            const size_t count = width == 0 ? 0 : values.ElementLength() / width;
            if (count == 0 || count * width != values.ElementLength() || count > llama_n_batch(context->ctx)) {
                throw Napi::RangeError::New(info.Env(), "embeddings");
            }
            // llama.cpp aborts where it cannot compute such an image at once.
            if (nonCausal && count > llama_n_ubatch(context->ctx)) throw Napi::RangeError::New(info.Env(), "embeddings");
            const int32_t first = info[2].As<Napi::Number>().Int32Value();
            const int32_t index = info[3].As<Napi::Number>().Int32Value();
            const int32_t columns = info[4].As<Napi::Number>().Int32Value();
            embeddings = values.Data();
            held = Napi::Persistent(values.As<Napi::Object>());
            const size_t dimensions = columns > 0 ? DIMENSIONS : 1;
            positions.resize(count * dimensions, 0);
            for (size_t i = 0; i < count; i++) {
                const int32_t at = index + static_cast<int32_t>(i);
                if (columns == 0) {
                    positions[i] = first + at;
                    continue;
                }
                // Time, row, column; the fourth is unused.
                positions[i] = first;
                positions[count + i] = first + at / columns;
                positions[2 * count + i] = first + at % columns;
            }
            counts.assign(count, 1);
            sequences.assign(count, &sequence);
            wanted.assign(count, 0);
            context->Ref();
        }
        ~EmbeddingsWorker() override { context->Unref(); }

        Napi::Promise promise() const { return deferred.Promise(); }

    protected:
        // With the messages that engine/scheduler/faults.ts knows from the addon's own decode.
        void Execute() override {
            context->sharedSamplerData.gotLogit = false;
            context->sharedSamplerData.hasLogits = false;
            llama_batch batch{};
            batch.n_tokens = static_cast<int32_t>(counts.size());
            batch.embd = embeddings;
            batch.pos = positions.data();
            batch.n_seq_id = counts.data();
            batch.seq_id = sequences.data();
            batch.logits = wanted.data();
            const int result = nonCausal ? NonCausal(context->ctx).decode(batch) : decode(context->ctx, batch);
            if (result == 1) SetError("could not find a KV slot for the batch");
            else if (result != 0) SetError("Eval has failed");
        }
        // llama.cpp may throw where it finds no memory for the other kind of attention, which must not stay.
        class NonCausal {
            public:
                explicit NonCausal(llama_context * context) : context(context) { llama_set_causal_attn(context, false); }
                ~NonCausal() { llama_set_causal_attn(context, true); }
                NonCausal(const NonCausal &) = delete;
                NonCausal & operator=(const NonCausal &) = delete;
                int decode(const llama_batch & batch) const { return EmbeddingsWorker::decode(context, batch); }

            private:
                llama_context * context;
        };

        static int decode(llama_context * context, const llama_batch & batch) {
            const int result = llama_decode(context, batch);
            llama_synchronize(context);
            return result;
        }

        void OnOK() override { deferred.Resolve(deferred.Env().Undefined()); }
        void OnError(const Napi::Error & error) override { deferred.Reject(error.Value()); }

    private:
        Napi::Promise::Deferred deferred;
        AddonContext * context;
        llama_seq_id sequence;
        const bool nonCausal;
        Napi::ObjectReference held;
        float * embeddings = nullptr;
        std::vector<llama_pos> positions;
        std::vector<int32_t> counts;
        std::vector<llama_seq_id *> sequences;
        std::vector<int8_t> wanted;
};

Napi::Value decodeEmbeddings(const Napi::CallbackInfo & info) {
    auto * worker = new EmbeddingsWorker(info);
    const auto promise = worker->promise();
    worker->Queue();
    return promise;
}

// Numbers of an embedding.
Napi::Value embeddingWidth(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    return Napi::Number::New(info.Env(), llama_model_n_embd_inp(llama_get_model(context->ctx)));
}

} // namespace

// Called by init in next-token.cpp.
void raEmbeddingsInit(Napi::Object exports) {
    const Napi::Env env = exports.Env();
    exports.Set("raDecodeEmbeddings", Napi::Function::New(env, decodeEmbeddings, "raDecodeEmbeddings"));
    exports.Set("raEmbeddingWidth", Napi::Function::New(env, embeddingWidth, "raEmbeddingWidth"));
}
