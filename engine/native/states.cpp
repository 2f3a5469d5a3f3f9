/*
 * Whole states of sequences, copied between llama.cpp's memory and a file in memory that is mapped meanwhile. The addon's own way goes
 * through the buffers of llama.cpp's and the C library's files, which copies each byte once more in either direction.
 *
 * Part of ra-engine, the addon of next-token.cpp; engine/llama/state-file.ts uses it.
 */
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>

#include <fcntl.h>
#include <sys/mman.h>

#include "llama.h"
#include "napi.h"

#include "AddonContext.h"

namespace {

// The beginning of a file, with all its pages. Their kernel entries are made before the copy, and removed after it, piece by piece: the
// kernel holds the lock on the process's memory for each call, for which V8's thread would wait tens of ms where a state has 500 MB.
class Mapping {
    public:
        Mapping(int file, size_t bytes, bool writable) : bytes(bytes) {
            void * found = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
            if (found == MAP_FAILED) return;
            data = static_cast<uint8_t *>(found);
            // A kernel before 5.14 has neither, and makes the entries during the copy.
            pieces([writable](void * piece, size_t size) { return madvise(piece, size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ); });
        }
        ~Mapping() { if (data != nullptr) pieces(munmap); }
        Mapping(const Mapping &) = delete;
        Mapping & operator=(const Mapping &) = delete;

        uint8_t * data = nullptr;

    private:
        static constexpr size_t PIECE = 2 << 20;

        template <typename Call> void pieces(Call call) const {
            for (size_t at = 0; at < bytes && call(data + at, std::min(PIECE, bytes - at)) == 0; at += PIECE) {}
        }

        const size_t bytes;
};

class StateWorker : public Napi::AsyncWorker {
    public:
        // Context, sequence, descriptor, and of a restore the bytes of the state; of a save they are found out.
        explicit StateWorker(const Napi::CallbackInfo & info)
            : Napi::AsyncWorker(info.Env(), "RaState"),
              deferred(Napi::Promise::Deferred::New(info.Env())),
              context(Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>())),
              sequence(info[1].As<Napi::Number>().Int32Value()),
              file(info[2].As<Napi::Number>().Int32Value()),
              saves(!info[3].IsNumber()),
              bytes(saves ? 0 : static_cast<size_t>(info[3].As<Napi::Number>().Int64Value())) {
            context->Ref();
        }
        ~StateWorker() override { context->Unref(); }

        Napi::Promise promise() const { return deferred.Promise(); }

    protected:
        void Execute() override {
            try {
                if (saves) save();
                else restore();
            } catch (const std::exception &) {
                SetError("the state was not copied");
            }
        }

        void OnOK() override { deferred.Resolve(Napi::Number::New(deferred.Env(), static_cast<double>(bytes))); }
        void OnError(const Napi::Error & error) override { deferred.Reject(error.Value()); }

    private:
        void save() {
            bytes = llama_state_seq_get_size_ext(context->ctx, sequence, LLAMA_STATE_SEQ_FLAGS_NONE);
            // Where a page is missing a write to the mapping would end the process.
            if (bytes == 0 || posix_fallocate(file, 0, static_cast<off_t>(bytes)) != 0) {
                SetError("there is no memory for the state");
                return;
            }
            const Mapping mapped(file, bytes, true);
            if (mapped.data == nullptr || llama_state_seq_get_data_ext(context->ctx, mapped.data, bytes, sequence, LLAMA_STATE_SEQ_FLAGS_NONE) != bytes) {
                SetError("the state was not saved");
            }
        }

        void restore() {
            const Mapping mapped(file, bytes, false);
            if (mapped.data == nullptr || llama_state_seq_set_data_ext(context->ctx, mapped.data, bytes, sequence, LLAMA_STATE_SEQ_FLAGS_NONE) != bytes) {
                SetError("the state was not restored");
            }
        }

        Napi::Promise::Deferred deferred;
        AddonContext * context;
        const llama_seq_id sequence;
        const int file;
        const bool saves;
        size_t bytes;
};

Napi::Value copyState(const Napi::CallbackInfo & info) {
    auto * worker = new StateWorker(info);
    const auto promise = worker->promise();
    worker->Queue();
    return promise;
}

// Context, sequence, whether only what cannot be truncated counts.
Napi::Value stateSize(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    const auto flags = info[2].As<Napi::Boolean>().Value() ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : LLAMA_STATE_SEQ_FLAGS_NONE;
    const size_t bytes = llama_state_seq_get_size_ext(context->ctx, info[1].As<Napi::Number>().Int32Value(), flags);
    return Napi::Number::New(info.Env(), static_cast<double>(bytes));
}

} // namespace

// Called by init in next-token.cpp.
void raStatesInit(Napi::Object exports) {
    const Napi::Env env = exports.Env();
    exports.Set("raSaveState", Napi::Function::New(env, copyState, "raSaveState"));
    exports.Set("raRestoreState", Napi::Function::New(env, copyState, "raRestoreState"));
    exports.Set("raStateSize", Napi::Function::New(env, stateSize, "raStateSize"));
}
