/*
 * Whole states of sequences in pages of host memory that a GPU reads and writes itself (pinned memory). A copy to or from any other
 * memory goes through the driver's own buffers, at a fraction of the bus. To pin memory takes as long as to fill it, so pages are
 * allocated many at a time, beside the steps, and used again.
 *
 * llama.cpp's C functions want a state in one piece. Its memory writes and reads a state through an interface, which here
 * distributes it over pages: then no page is ever too small, and none is lost between two states.
 *
 * Part of ra-engine, the addon of next-token.cpp; engine/llama/paged-states.ts uses it.
 */
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "llama-io.h"
#include "llama-memory.h"
#include "llama.h"
#include "napi.h"

#include "AddonContext.h"

namespace {

// A copy of a page takes several times what its start takes.
constexpr size_t PAGE = size_t(2) << 20;

using State = std::vector<uint8_t *>;

// All methods may be called on any thread.
class Pages {
    public:
        // Returns false where there is no memory.
        bool grow(ggml_backend_buffer_type_t type, size_t count) {
            ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, count * PAGE);
            if (buffer == nullptr) return false;
            auto * base = static_cast<uint8_t *>(ggml_backend_buffer_get_base(buffer));
            const std::lock_guard<std::mutex> lock(mutex);
            buffers.push_back(buffer);
            all += count;
            // The one that is taken next is the last.
            for (size_t i = count; i > 0; i--) empty.push_back(base + (i - 1) * PAGE);
            return true;
        }

        // Returns nullptr where each page has a state.
        uint8_t * take() {
            std::unique_lock<std::mutex> lock(mutex);
            if (used.empty() && empty.empty()) wiped.wait(lock, [this] { return wiping == 0 || !empty.empty(); });
            // What is written over needs not be wiped.
            auto & from = used.empty() ? empty : used;
            return from.empty() ? nullptr : last(from);
        }

        void give(const State & pages) {
            const std::lock_guard<std::mutex> lock(mutex);
            used.insert(used.end(), pages.rbegin(), pages.rend());
        }

        // Whether a page has a state's content that no state has any more.
        bool areUsed() const {
            const std::lock_guard<std::mutex> lock(mutex);
            return !used.empty();
        }

        // Writes zeros over pages that no state has any more, until there are none.
        void wipe() {
            std::unique_lock<std::mutex> lock(mutex);
            while (!used.empty()) {
                auto * page = last(used);
                wiping++;
                lock.unlock();
                std::memset(page, 0, PAGE);
                lock.lock();
                wiping--;
                empty.push_back(page);
                wiped.notify_all();
            }
        }

        void clear() {
            const std::lock_guard<std::mutex> lock(mutex);
            for (auto * buffer : buffers) ggml_backend_buffer_free(buffer);
            buffers.clear();
            used.clear();
            empty.clear();
            all = 0;
        }

        size_t size() const { return counted([this] { return all * PAGE; }); }
        size_t free() const { return counted([this] { return (used.size() + wiping + empty.size()) * PAGE; }); }

        // Of the memory that was allocated last: it may be another kind than the one that was asked for.
        const char * name() const {
            const std::lock_guard<std::mutex> lock(mutex);
            return buffers.empty() ? "" : ggml_backend_buft_name(ggml_backend_buffer_get_type(buffers.back()));
        }

    private:
        static uint8_t * last(State & pages) {
            auto * page = pages.back();
            pages.pop_back();
            return page;
        }

        template <typename Count> size_t counted(Count count) const {
            const std::lock_guard<std::mutex> lock(mutex);
            return count();
        }

        mutable std::mutex mutex;
        std::condition_variable wiped;
        std::vector<ggml_backend_buffer_t> buffers;
        // Pages without a state: with one that was, and of zeros or never written.
        State used;
        State empty;
        size_t wiping = 0;
        size_t all = 0;
};

// Where there are no more pages it only counts.
class Writer : public llama_io_write_i {
    public:
        explicit Writer(Pages & pages) : pages(pages) {}

        void write(const void * source, size_t size) override {
            const auto * from = static_cast<const uint8_t *>(source);
            each(size, [from](uint8_t * to, size_t at, size_t count) { std::memcpy(to, from + at, count); });
        }
        void write_tensor(ggml_tensor * tensor, size_t offset, size_t size) override {
            each(size, [=](uint8_t * to, size_t at, size_t count) { ggml_backend_tensor_get(tensor, to, offset + at, count); });
        }
        size_t n_bytes() override { return written; }

        // Once all is written: the rest of the last page may have another account's.
        void wipeRest() {
            const size_t within = written % PAGE;
            if (within != 0 && !isFull) std::memset(state.back() + within, 0, PAGE - within);
        }

        State state;
        bool isFull = false;

    private:
        template <typename Copy> void each(size_t size, Copy copy) {
            for (size_t at = 0; at < size;) {
                const size_t within = written % PAGE;
                if (within == 0 && !isFull) {
                    auto * page = pages.take();
                    if (page == nullptr) isFull = true;
                    else state.push_back(page);
                }
                const size_t count = std::min(PAGE - within, size - at);
                if (!isFull) copy(state.back() + within, at, count);
                at += count;
                written += count;
            }
        }

        Pages & pages;
        size_t written = 0;
};

class Reader : public llama_io_read_i {
    public:
        explicit Reader(const State & state) : state(state) {}

        void read(void * target, size_t size) override {
            auto * to = static_cast<uint8_t *>(target);
            each(size, [to](const uint8_t * from, size_t at, size_t count) { std::memcpy(to + at, from, count); });
        }
        void read_tensor(ggml_tensor * tensor, size_t offset, size_t size) override {
            each(size, [=](const uint8_t * from, size_t at, size_t count) { ggml_backend_tensor_set(tensor, from, offset + at, count); });
        }
        size_t n_bytes() override { return done; }

    private:
        template <typename Copy> void each(size_t size, Copy copy) {
            for (size_t at = 0; at < size;) {
                const size_t within = done % PAGE;
                const size_t count = std::min(PAGE - within, size - at);
                copy(state.at(done / PAGE) + within, at, count);
                at += count;
                done += count;
            }
        }

        const State & state;
        size_t done = 0;
};

// Finds the host memory of a device that has some of a sequence's state.
class Search : public llama_io_write_i {
    public:
        void write(const void *, size_t) override {}
        void write_tensor(ggml_tensor * tensor, size_t, size_t) override {
            auto * buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
            if (found != nullptr || buffer == nullptr || ggml_backend_buffer_is_host(buffer)) return;
            auto * device = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer));
            if (device != nullptr) found = ggml_backend_dev_host_buffer_type(device);
        }
        size_t n_bytes() override { return 0; }

        ggml_backend_buffer_type_t found = nullptr;
};

llama_memory_i & memoryOf(const AddonContext & context) {
    auto * memory = llama_get_memory(context.ctx);
    if (memory == nullptr) throw std::runtime_error("the context has no memory");
    return *memory;
}

class RaStatePages : public Napi::ObjectWrap<RaStatePages> {
    public:
        // Context, whose sequence 0 has a token; whether memory of the CPU will do.
        explicit RaStatePages(const Napi::CallbackInfo & info) : Napi::ObjectWrap<RaStatePages>(info) {
            try {
                Search search;
                const auto & context = *Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
                memoryOf(context).state_write(search, 0, LLAMA_STATE_SEQ_FLAGS_NONE);
                type = search.found;
            } catch (const std::exception &) {
                // A state that cannot be written is not saved at all.
            }
            if (type == nullptr && info[1].ToBoolean().Value()) type = ggml_backend_cpu_buffer_type();
        }
        // Frees nothing: it runs at the end of the process, when the driver may be gone.
        ~RaStatePages() override = default;

        Napi::Value found(const Napi::CallbackInfo & info) { return Napi::Boolean::New(info.Env(), type != nullptr); }
        Napi::Value name(const Napi::CallbackInfo & info) { return Napi::String::New(info.Env(), pages.name()); }
        Napi::Value size(const Napi::CallbackInfo & info) { return Napi::Number::New(info.Env(), static_cast<double>(pages.size())); }
        Napi::Value free(const Napi::CallbackInfo & info) { return Napi::Number::New(info.Env(), static_cast<double>(pages.free())); }

        Napi::Value grow(const Napi::CallbackInfo & info);
        Napi::Value save(const Napi::CallbackInfo & info);
        Napi::Value restore(const Napi::CallbackInfo & info);

        void drop(const Napi::CallbackInfo & info);
        // On another thread, where there is something to wipe.
        void wipe();

        void dispose(const Napi::CallbackInfo &) {
            disposed = true;
            clear();
        }

        void begin() {
            Ref();
            busy++;
        }
        void end() {
            busy--;
            clear();
            Unref();
        }

        // JavaScript's thread alone has these.
        std::unordered_map<uint32_t, State> states;
        uint32_t next = 0;
        bool wipes = false;

        Pages pages;
        ggml_backend_buffer_type_t type = nullptr;
        bool disposed = false;

    private:
        void clear() {
            if (!disposed || busy > 0) return;
            states.clear();
            pages.clear();
        }

        size_t busy = 0;
};

// Work on another thread with the pages, which are freed after it at the earliest.
class PagesWorker : public Napi::AsyncWorker {
    public:
        explicit PagesWorker(RaStatePages & owner)
            : Napi::AsyncWorker(owner.Env(), "RaStatePages"), owner(owner), deferred(Napi::Promise::Deferred::New(owner.Env())) {
            owner.begin();
        }
        ~PagesWorker() override { owner.end(); }

        Napi::Promise start() {
            const auto promise = deferred.Promise();
            if (owner.disposed) {
                deferred.Reject(Napi::Error::New(deferred.Env(), "the memory is freed").Value());
                delete this;
            } else {
                Queue();
            }
            return promise;
        }

    protected:
        void OnOK() override {
            deferred.Resolve(result());
            owner.wipe();
        }
        void OnError(const Napi::Error & error) override {
            deferred.Reject(error.Value());
            owner.wipe();
        }
        virtual Napi::Value result() { return deferred.Env().Undefined(); }

        RaStatePages & owner;
        Napi::Promise::Deferred deferred;
};

class GrowWorker : public PagesWorker {
    public:
        GrowWorker(RaStatePages & owner, size_t count) : PagesWorker(owner), count(count) {}

    protected:
        void Execute() override { grown = owner.pages.grow(owner.type, count); }
        Napi::Value result() override { return Napi::Boolean::New(deferred.Env(), grown); }

    private:
        const size_t count;
        bool grown = false;
};

class WipeWorker : public PagesWorker {
    public:
        explicit WipeWorker(RaStatePages & owner) : PagesWorker(owner) { owner.wipes = true; }

    protected:
        void Execute() override { owner.pages.wipe(); }
        Napi::Value result() override {
            owner.wipes = false;
            return PagesWorker::result();
        }
};

class CopyWorker : public PagesWorker {
    public:
        CopyWorker(RaStatePages & owner, AddonContext * context, llama_seq_id sequence)
            : PagesWorker(owner), context(context), sequence(sequence) {
            context->Ref();
        }
        ~CopyWorker() override { context->Unref(); }

    protected:
        virtual void copy(llama_memory_i & memory) = 0;

        void Execute() override {
            try {
                llama_synchronize(context->ctx);
                copy(memoryOf(*context));
            } catch (const std::exception &) {
                SetError("the state was not copied");
            }
        }

        AddonContext * context;
        const llama_seq_id sequence;
};

class SaveWorker : public CopyWorker {
    public:
        using CopyWorker::CopyWorker;

    protected:
        void copy(llama_memory_i & memory) override {
            Writer writer(owner.pages);
            try {
                memory.state_write(writer, sequence, LLAMA_STATE_SEQ_FLAGS_NONE);
                writer.wipeRest();
            } catch (const std::exception &) {
                owner.pages.give(writer.state);
                throw;
            }
            bytes = (writer.n_bytes() + PAGE - 1) / PAGE * PAGE;
            if (writer.isFull) owner.pages.give(writer.state);
            else state = std::move(writer.state);
        }

        // The number of the state, 0 where there are not enough pages, and the bytes that it takes.
        Napi::Value result() override {
            auto found = Napi::Array::New(deferred.Env(), 2);
            found.Set(uint32_t(0), Napi::Number::New(deferred.Env(), state.empty() ? 0 : ++owner.next));
            found.Set(uint32_t(1), Napi::Number::New(deferred.Env(), static_cast<double>(bytes)));
            if (!state.empty()) owner.states.emplace(owner.next, std::move(state));
            return found;
        }

    private:
        State state;
        size_t bytes = 0;
};

class RestoreWorker : public CopyWorker {
    public:
        RestoreWorker(RaStatePages & owner, AddonContext * context, llama_seq_id sequence, uint32_t number)
            : CopyWorker(owner, context, sequence) {
            const auto at = owner.states.find(number);
            if (at != owner.states.end()) state = at->second;
        }

    protected:
        void copy(llama_memory_i & memory) override {
            Reader reader(state);
            memory.state_read(reader, sequence, LLAMA_STATE_SEQ_FLAGS_NONE);
        }

    private:
        State state;
};

void RaStatePages::drop(const Napi::CallbackInfo & info) {
    const auto at = states.find(info[0].As<Napi::Number>().Uint32Value());
    if (at == states.end()) return;
    pages.give(at->second);
    states.erase(at);
    wipe();
}

void RaStatePages::wipe() {
    if (!wipes && !disposed && pages.areUsed()) (new WipeWorker(*this))->start();
}

Napi::Value RaStatePages::grow(const Napi::CallbackInfo & info) {
    const auto bytes = static_cast<size_t>(info[0].As<Napi::Number>().Int64Value());
    return (new GrowWorker(*this, bytes / PAGE))->start();
}

Napi::Value RaStatePages::save(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    return (new SaveWorker(*this, context, info[1].As<Napi::Number>().Int32Value()))->start();
}

Napi::Value RaStatePages::restore(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    const auto number = info[2].As<Napi::Number>().Uint32Value();
    return (new RestoreWorker(*this, context, info[1].As<Napi::Number>().Int32Value(), number))->start();
}

} // namespace

// Called by init in next-token.cpp.
void raPagesInit(Napi::Env env, Napi::Object exports) {
    using Class = RaStatePages;
    exports.Set("RaStatePages", Class::DefineClass(env, "RaStatePages", {
        Class::InstanceAccessor<&Class::found>("found"),
        Class::InstanceAccessor<&Class::name>("name"),
        Class::InstanceAccessor<&Class::size>("size"),
        Class::InstanceAccessor<&Class::free>("free"),
        Class::InstanceMethod<&Class::grow>("grow"),
        Class::InstanceMethod<&Class::save>("save"),
        Class::InstanceMethod<&Class::restore>("restore"),
        Class::InstanceMethod<&Class::drop>("drop"),
        Class::InstanceMethod<&Class::dispose>("dispose"),
    }));
}
