/*
 * Next tokens chosen in the very job that decodes. The addon's own way costs a second job for each token, a copy of the
 * vocabulary into 12-byte candidates and a pass over these; where a decode of a small model takes 0.2 ms a token, that is a
 * third of it; where top_p is asked for it also sorts them. Here one pass over the logits gives the argmax, one gives a draw
 * from the softmax, and some more one from its top_p.
 *
 * An addon of its own beside node-llama-cpp's (`make native`, engine/native/build.ts): it calls llama.cpp's exported C functions in
 * whichever library node-llama-cpp's addon loaded, and reads the addon's context by the header of the same version. Where a grammar
 * allows only some tokens, a bit mask of them is passed with the step; a token picked freely that the grammar refuses is picked again
 * from the same logits, without a decode.
 */
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"
#include "napi.h"

#include "AddonContext.h"
#include "picker.h"

ggml_threadpool * raThreadpool(int32_t threads);

namespace {

// Some 131,072 polls of each, 2 to 6 ms: longer than the time between two steps.
constexpr uint32_t POLL = 1;

Napi::Value array_of(Napi::Env env, const std::vector<int32_t> & numbers) {
    auto result = Napi::Int32Array::New(env, numbers.size());
    std::memcpy(result.Data(), numbers.data(), numbers.size() * sizeof(int32_t));
    return result;
}

// The most threads that pick beside the decoding one, and the number of logits that is worth one.
struct Spread {
    size_t threads = 0;
    size_t logits = 1;
};
Spread spread;

// Threads that pick beside the decoding one. Each is started by the first step that is worth it, and lives as long as the process, as
// do its buffers.
class Helpers {
    public:
        // Calls `work` on this thread and on up to `count` others; returns once all have returned. From the thread of all decodes alone.
        void run(size_t count, const std::function<void()> & work) {
            if (count > 0) {
                const std::lock_guard<std::mutex> lock(mutex);
                try {
                    while (threads.size() < count) threads.emplace_back(&Helpers::serve, this, threads.size(), round);
                } catch (const std::system_error &) {
                    // No thread could be started; the others suffice.
                }
                wanted = running = std::min(count, threads.size());
                job = &work;
                round++;
                some.notify_all();
            }
            work();
            std::unique_lock<std::mutex> lock(mutex);
            none.wait(lock, [this] { return running == 0; });
        }

        void end() {
            {
                const std::lock_guard<std::mutex> lock(mutex);
                ended = true;
            }
            some.notify_all();
            for (auto & thread : threads) if (thread.joinable()) thread.join();
        }

    private:
        void serve(size_t index, uint64_t seen) {
            std::unique_lock<std::mutex> lock(mutex);
            while (true) {
                some.wait(lock, [&] { return ended || round != seen; });
                if (ended) return;
                seen = round;
                if (index >= wanted) continue;
                lock.unlock();
                (*job)();
                lock.lock();
                if (--running == 0) none.notify_one();
            }
        }

        std::mutex mutex;
        std::condition_variable some;
        std::condition_variable none;
        std::vector<std::thread> threads;
        const std::function<void()> * job = nullptr;
        // Of the present round: threads that take part, and those that have not returned.
        size_t wanted = 0;
        size_t running = 0;
        uint64_t round = 0;
        bool ended = false;
};

// Never freed; the thread of all decodes ends it.
Helpers & helpers() {
    static auto * only = new Helpers;
    return *only;
}

// Decodes and picks. For each part: sequence, first position, tokens, and whether its last token's logits are needed; of a token
// that only closes a gap between the parts' sequences GAP.
class Picks {
    public:
        explicit Picks(const Napi::CallbackInfo & info)
            : context(Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>())) {
            const auto parts = info[1].As<Napi::Int32Array>();
            const auto given = info[2].As<Napi::Int32Array>();
            const auto wrapped = info[3].As<Napi::Array>();
            const auto asked = info[5].As<Napi::Array>();
            const auto masks = info[6].As<Napi::Array>();
            const size_t length = given.ElementLength();
            tokens.assign(given.Data(), given.Data() + length);
            positions.reserve(length);
            sequences.reserve(length);
            wanted.assign(length, 0);
            for (size_t at = 0; at + PART <= parts.ElementLength(); at += PART) {
                const int32_t * part = parts.Data() + at;
                if (part[2] <= 0 || positions.size() + part[2] > length) throw Napi::RangeError::New(info.Env(), "tokens");
                for (int32_t i = 0; i < part[2]; i++) {
                    positions.push_back(part[1] + i);
                    sequences.push_back(part[0]);
                }
                const auto last = static_cast<int32_t>(positions.size()) - 1;
                if (part[3] == GAP) {
                    gaps.push_back(last);
                    continue;
                }
                wanted[last] = part[3] != 0;
                const Napi::Value picker = wrapped.Get(static_cast<uint32_t>(rows.size()));
                allowed.push_back(mask_of(info.Env(), masks.Get(static_cast<uint32_t>(rows.size()))));
                const Napi::Value named = asked.Get(static_cast<uint32_t>(rows.size()));
                if (named.IsTypedArray()) {
                    const auto array = named.As<Napi::Uint32Array>();
                    labels.emplace_back(array.Data(), array.Data() + array.ElementLength());
                } else {
                    labels.emplace_back();
                }
                rows.push_back(last);
                pickers.push_back(picker.IsObject() ? Napi::ObjectWrap<RaPicker>::Unwrap(picker.As<Napi::Object>()) : nullptr);
            }
            if (positions.size() != length) throw Napi::RangeError::New(info.Env(), "tokens");
        }

        // A closed account's prompt stays in no memory.
        ~Picks() { explicit_bzero(tokens.data(), tokens.size() * sizeof(llama_token)); }
        Picks(const Picks &) = delete;
        Picks & operator=(const Picks &) = delete;

        // From here to `release` it is not garbage collected.
        void hold() {
            context->Ref();
            for (auto * picker : pickers) if (picker != nullptr) picker->Ref();
        }
        void release() {
            for (auto * picker : pickers) if (picker != nullptr) picker->Unref();
            context->Unref();
        }

        // Throws the messages that engine/scheduler/faults.ts knows from the addon's own decode; nothing was then picked.
        void run() {
            context->sharedSamplerData.gotLogit = false;
            context->sharedSamplerData.hasLogits = false;
            counts.assign(tokens.size(), 1);
            for (auto & sequence : sequences) sequenceOf.push_back(&sequence);
            step();
        }

        // After `run`: the next step, whose tokens are its picks. False: there is none, since a part picked nothing or an
        // end token; an error is then met by the next caller.
        bool run_on() {
            if (tokens.size() != picks.size() + gaps.size()) return false;
            for (auto & mask : allowed) if (!mask.empty()) return false;
            for (const int32_t pick : picks) {
                if (pick < 0 || llama_vocab_is_eog(vocabulary(), pick)) return false;
            }
            for (size_t i = 0; i < rows.size(); i++) {
                tokens[rows[i]] = picks[i];
                positions[rows[i]]++;
            }
            try {
                step();
            } catch (const std::exception &) {
                // Sequences that are not contiguous may be partly done.
                auto * memory = llama_get_memory(context->ctx);
                for (size_t i = 0; i < positions.size(); i++) llama_memory_seq_rm(memory, sequences[i], positions[i], -1);
                return false;
            }
            return true;
        }

        // Of each part with labels, their log-probabilities after the last step.
        std::vector<std::vector<double>> taken_scores() { return std::move(scores); }

        // Picks of the last step, by part; -1: none; NOT_A_NUMBER.
        const std::vector<int32_t> & picked() const { return picks; }

    private:
        // Numbers per part in the array that describes them.
        static constexpr size_t PART = 4;
        // The last of them.
        static constexpr int32_t GAP = 2;

        std::vector<uint32_t> mask_of(Napi::Env env, const Napi::Value & given) const {
            if (!given.IsTypedArray()) return {};
            const auto array = given.As<Napi::Uint32Array>();
            if (array.ElementLength() * 32 < static_cast<size_t>(llama_vocab_n_tokens(vocabulary()))) throw Napi::RangeError::New(env, "allowed");
            return {array.Data(), array.Data() + array.ElementLength()};
        }

        void step() {
            llama_batch batch{};
            batch.n_tokens = static_cast<int32_t>(tokens.size());
            batch.token = tokens.data();
            batch.pos = positions.data();
            batch.n_seq_id = counts.data();
            batch.seq_id = sequenceOf.data();
            batch.logits = wanted.data();
            const int result = decode(batch);
            if (result == 1) throw std::runtime_error("could not find a KV slot for the batch");
            if (result != 0) throw std::runtime_error("Eval has failed");
            llama_synchronize(context->ctx);
            pick();
        }

        // Tokens that close gaps are removed whatever happens.
        int decode(const llama_batch & batch) {
            try {
                const int result = llama_decode(context->ctx, batch);
                open_gaps();
                return result;
            } catch (...) {
                open_gaps();
                throw;
            }
        }

        void open_gaps() {
            auto * memory = llama_get_memory(context->ctx);
            for (const int32_t at : gaps) llama_memory_seq_rm(memory, sequences[at], positions[at], positions[at] + 1);
        }

        // With many logits, several threads share the work: each reply has its own picker. Rows that are read otherwise, for a
        // grammar, are looked at only for whether they hold a number.
        void pick() {
            const int n = llama_vocab_n_tokens(vocabulary());
            picks.assign(rows.size(), -1);
            scores.assign(rows.size(), {});
            std::vector<float *> logits(rows.size(), nullptr);
            for (size_t i = 0; i < rows.size(); i++) {
                if (wanted[rows[i]] != 0) logits[i] = llama_get_logits_ith(context->ctx, rows[i]);
            }
            std::atomic<size_t> next = 0;
            const auto work = [&] {
                for (size_t i; (i = next++) < rows.size();) {
                    if (logits[i] == nullptr) continue;
                    if (pickers[i] != nullptr) picks[i] = pickers[i]->pick(logits[i], n, allowed[i].empty() ? nullptr : allowed[i].data());
                    else if (!labels[i].empty()) scores[i] = log_probabilities(logits[i], n, labels[i]);
                    else if (!is_number(highest(logits[i], n))) picks[i] = NOT_A_NUMBER;
                }
            };
            const size_t worth = rows.size() * n / spread.logits;
            helpers().run(worth < 2 ? 0 : std::min<size_t>(spread.threads, worth - 1), work);
        }

        const llama_vocab * vocabulary() const { return llama_model_get_vocab(llama_get_model(context->ctx)); }

        AddonContext * context;
        // By token of the batch.
        std::vector<llama_token> tokens;
        std::vector<llama_pos> positions;
        std::vector<llama_seq_id> sequences;
        std::vector<llama_seq_id *> sequenceOf;
        std::vector<int32_t> counts;
        std::vector<int8_t> wanted;
        // By part.
        std::vector<int32_t> rows;
        std::vector<RaPicker *> pickers;
        std::vector<std::vector<uint32_t>> labels;
        // A bit for each token of the vocabulary; empty: all may be picked.
        std::vector<std::vector<uint32_t>> allowed;
        std::vector<std::vector<double>> scores;
        // Indexes of tokens that close gaps.
        std::vector<int32_t> gaps;
        std::vector<int32_t> picks;
};

// State shared by a run and the thread that polls it.
class Made {
    public:
        void add(const std::vector<int32_t> & picks) {
            const std::lock_guard<std::mutex> lock(mutex);
            numbers.insert(numbers.end(), picks.begin(), picks.end());
        }
        // Picks that were not polled yet, step by step.
        std::vector<int32_t> take() {
            const std::lock_guard<std::mutex> lock(mutex);
            return std::exchange(numbers, {});
        }
        // Of the first step, by part; set before it ends.
        std::vector<std::vector<double>> scores;

        std::atomic<bool> halted = false;

    private:
        std::mutex mutex;
        std::vector<int32_t> numbers;
};

// The thread for all decodes, one for the process. It stays on its core, with its data in that core's cache. Threads of the
// pool take turns on different cores, which costs eight callers of a small model 7 % of their tokens. Short decodes on
// JavaScript's main thread, to save waking two threads, cost 5 %, since other work competes for that core.
class Worker {
    public:
        void begin() {
            const std::lock_guard<std::mutex> lock(mutex);
            if (thread.joinable()) return;
            thread = std::thread(&Worker::work, this);
        }
        void add(std::function<void()> job) {
            begin();
            {
                const std::lock_guard<std::mutex> lock(mutex);
                jobs.push_back(std::move(job));
            }
            some.notify_one();
        }
        bool ends() const { return ended; }
        // Waits for the current step: at the end of the process its data is freed.
        void end() {
            {
                const std::lock_guard<std::mutex> lock(mutex);
                ended = true;
            }
            some.notify_one();
            if (thread.joinable()) thread.join();
            helpers().end();
        }

    private:
        void work() {
            while (true) {
                std::unique_lock<std::mutex> lock(mutex);
                some.wait(lock, [this] { return ended || !jobs.empty(); });
                if (ended) return;
                const auto job = std::move(jobs.front());
                jobs.pop_front();
                lock.unlock();
                job();
            }
        }

        std::mutex mutex;
        std::condition_variable some;
        std::deque<std::function<void()>> jobs;
        std::thread thread;
        std::atomic<bool> ended = false;
};

// Never freed. Created only once there is a context: exit handlers run in reverse order of registration, so the thread ends
// before the objects that llama.cpp has by then. Objects that decodes create later are freed earlier: callers use `leave`.
Worker & worker() {
    static auto * only = [] {
        std::atexit([] { worker().end(); });
        return new Worker;
    }();
    return *only;
}

// Step after step on the worker, while this thread polls what they picked: each step's tokens are the previous step's
// picks, so no communication is needed in between. The worker sends no notifications: on a virtual machine, waking a thread
// delays the one that wakes it.
class Running {
    public:
        explicit Running(const Napi::CallbackInfo & info)
            : deferred(Napi::Promise::Deferred::New(info.Env())),
              picks(info),
              most(info[4].As<Napi::Number>().Uint32Value()) {
            picks.hold();
        }
        ~Running() { picks.release(); }
        Running(const Running &) = delete;
        Running & operator=(const Running &) = delete;

        Napi::Object object() const {
            auto run = Napi::Object::New(deferred.Env());
            run.Set("ended", deferred.Promise());
            run.Set("take", Napi::Function::New(deferred.Env(), [made = made](const Napi::CallbackInfo & info) {
                return array_of(info.Env(), made->take());
            }));
            run.Set("scores", Napi::Function::New(deferred.Env(), [made = made](const Napi::CallbackInfo & info) {
                auto all = Napi::Array::New(info.Env(), made->scores.size());
                for (size_t i = 0; i < made->scores.size(); i++) {
                    const auto & each = made->scores[i];
                    auto array = Napi::Float64Array::New(info.Env(), each.size());
                    std::memcpy(array.Data(), each.data(), each.size() * sizeof(double));
                    all.Set(static_cast<uint32_t>(i), array);
                }
                return all;
            }));
            run.Set("halt", Napi::Function::New(deferred.Env(), [made = made](const Napi::CallbackInfo &) {
                made->halted = true;
            }));
            return run;
        }

        // On the worker thread.
        void make() {
            try {
                picks.run();
            } catch (const std::exception & error) {
                failed = error.what();
                return;
            } catch (...) {
                failed = "Eval has failed";
                return;
            }
            made->scores = picks.taken_scores();
            made->add(picks.picked());
            for (uint32_t steps = 1; steps < most && goes_on() && picks.run_on(); steps++) made->add(picks.picked());
        }

        // On the thread that requested it, after its end.
        void settle() {
            if (failed.empty()) deferred.Resolve(deferred.Env().Undefined());
            else deferred.Reject(Napi::Error::New(deferred.Env(), failed).Value());
        }

    private:
        bool goes_on() const { return !made->halted && !worker().ends(); }

        Napi::Promise::Deferred deferred;
        Picks picks;
        const uint32_t most;
        const std::shared_ptr<Made> made = std::make_shared<Made>();
        std::string failed;
};

// The way back from the worker to JavaScript, for all runs. While a run is active, the event loop stays alive.
class Runs {
    public:
        explicit Runs(Napi::Env env) : back(Back::New(env, "RaRun", 0, 1, this)) { back.Unref(env); }

        Napi::Object start(const Napi::CallbackInfo & info) {
            auto * running = new Running(info);
            const Napi::Object object = running->object();
            if (open++ == 0) back.Ref(info.Env());
            worker().add([this, running] {
                running->make();
                back.BlockingCall(running);
            });
            return object;
        }

    private:
        static void settled(Napi::Env env, Napi::Function, Runs * runs, Running * running) {
            // Without it no result can be returned: JavaScript is ending.
            if (env == nullptr) return;
            if (--runs->open == 0) runs->back.Unref(env);
            running->settle();
            delete running;
        }
        using Back = Napi::TypedThreadSafeFunction<Runs, Running, settled>;

        Back back;
        size_t open = 0;
};

Napi::Value decodeRun(const Napi::CallbackInfo & info) {
    return static_cast<Runs *>(info.Data())->start(info);
}

void useThreads(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    const int32_t threads = info[1].As<Napi::Number>().Int32Value();
    spread.threads = info[2].As<Napi::Number>().Uint32Value();
    spread.logits = std::max<uint32_t>(1, info[3].As<Napi::Number>().Uint32Value());
    worker().begin();
    auto * pool = raThreadpool(threads);
    if (pool != nullptr) llama_attach_threadpool(context->ctx, pool, pool);
}

// Context, row, picker, allowed: in place of the token that the picker picked last, another one from the same logits. Between decodes.
Napi::Value pickAgain(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    auto * picker = Napi::ObjectWrap<RaPicker>::Unwrap(info[2].As<Napi::Object>());
    const auto allowed = info[3].As<Napi::Uint32Array>();
    const int n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context->ctx)));
    const float * logits = llama_get_logits_ith(context->ctx, info[1].As<Napi::Number>().Int32Value());
    if (logits == nullptr || allowed.ElementLength() * 32 < static_cast<size_t>(n)) throw Napi::RangeError::New(info.Env(), "logits");
    return Napi::Number::New(info.Env(), picker->pick_again(logits, n, allowed.Data()));
}

// Tokens of the vocabulary.
Napi::Value vocabularySize(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    return Napi::Number::New(info.Env(), llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context->ctx))));
}

// Forgets all sequences, and writes zeros over what their cells held. Between decodes.
void clearMemory(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    llama_memory_clear(llama_get_memory(context->ctx), true);
}

// At the end of JavaScript, while the data of decodes still exists: no step starts any more.
void leave(const Napi::CallbackInfo &) {
    worker().end();
}

} // namespace

// Compute threads that wait for the next decode, from any thread, and spin for a while before they sleep. Without them each
// decode starts and ends its own threads, which takes most of a small model's time. They live as long as the process, like
// the worker, which useThreads starts too, so that pinning to cores finds all threads. nullptr: one thread needs none.
ggml_threadpool * raThreadpool(int32_t threads) {
    if (threads < 2) return nullptr;
    auto * cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    auto * make = cpu == nullptr ? nullptr : reinterpret_cast<decltype(ggml_threadpool_new) *>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_threadpool_new"));
    if (make == nullptr) return nullptr;
    auto params = ggml_threadpool_params_default(threads);
    params.poll = POLL;
    return make(&params);
}

void raEmbeddingsInit(Napi::Object);
void raPoolingInit(Napi::Object);
void raStatesInit(Napi::Object);

namespace {

Napi::Object init(Napi::Env env, Napi::Object exports) {
    exports.Set("raSources", Napi::String::New(env, RA_SOURCES));
    exports.Set("RaPicker", RaPicker::DefineClass(env, "RaPicker", {RaPicker::InstanceMethod<&RaPicker::add>("add")}));
    raEmbeddingsInit(exports);
    raPoolingInit(exports);
    raStatesInit(exports);
    exports.Set("raUseThreads", Napi::Function::New(env, useThreads, "raUseThreads"));
    exports.Set("raPickAgain", Napi::Function::New(env, pickAgain, "raPickAgain"));
    exports.Set("raVocabularySize", Napi::Function::New(env, vocabularySize, "raVocabularySize"));
    exports.Set("raClearMemory", Napi::Function::New(env, clearMemory, "raClearMemory"));
    exports.Set("raLeave", Napi::Function::New(env, leave, "raLeave"));
    exports.Set("raDecodeRun", Napi::Function::New(env, decodeRun, "raDecodeRun", new Runs(env)));
    return exports;
}

} // namespace

NODE_API_MODULE(ra_engine, init)
