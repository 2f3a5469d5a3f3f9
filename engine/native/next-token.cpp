/*
 * Next tokens chosen in the very job that decodes. The addon's own way costs a second job for each token, a copy of the
 * vocabulary into 12-byte candidates and a pass over these; where a decode of a small model takes 0.2 ms a token, that is a
 * third of it; where top_p is asked for it also sorts them. Here one pass over the logits gives the argmax, one gives a draw
 * from the softmax, and some more one from its top_p.
 *
 * Part of the addon of `make engine-native`, which compiles it with the addon's own headers; engine/llama/addon.ts uses it
 * where it is there. What a grammar holds goes the addon's way.
 */
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"
#include "napi.h"

#include "AddonContext.h"

// One compiled file for every x86-64 machine, with the widest vectors that the one it runs on has.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define RA_WIDE __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define RA_WIDE
#endif

namespace {

// What engine/llama/addon.ts knows it by: raised whenever what it is called with, or gives, changes.
constexpr int VERSION = 4;

// Independent lanes, so that the compiler may use vectors without leave to reorder sums.
constexpr int LANES = 32;
// Highest ones are kept and weights summed by blocks, so that what is looked for is looked for in one.
constexpr int BLOCK = 1024;

// Some 131,072 looks for work each, 2 to 6 ms: longer than what lies between two steps, shorter than anyone's idle time.
constexpr uint32_t POLL = 1;

RA_WIDE float highest(const float * logits, int n) {
    float lanes[LANES];
    for (int j = 0; j < LANES; j++) lanes[j] = -INFINITY;
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
    }
    float most = -INFINITY;
    for (; i < n; i++) most = logits[i] > most ? logits[i] : most;
    for (int j = 0; j < LANES; j++) most = lanes[j] > most ? lanes[j] : most;
    return most;
}

// The first of those that are highest, as llama.cpp's greedy sampler has it. Looked for in one block alone: a search, which
// stops where it finds, is not made with vectors.
int32_t argmax(const float * logits, int n) {
    float most = -INFINITY;
    int block = 0;
    for (int from = 0; from < n; from += BLOCK) {
        const float here = highest(logits + from, n - from < BLOCK ? n - from : BLOCK);
        if (here > most) {
            most = here;
            block = from;
        }
    }
    for (int i = block; i < n; i++) {
        if (logits[i] == most) return i;
    }
    return 0;
}

// exp of what is not above 0, within 2 units in the last place; 0 where a float's exp is as good as that.
inline float exp_below(float x) {
    const float clamped = x < -87.0f ? -87.0f : x;
    // Adding and taking away 1.5 * 2^23 rounds to the nearest whole number.
    const float shifter = 12582912.0f;
    const float whole = (clamped * 1.44269504f + shifter) - shifter;
    float r = clamped - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : p * power;
}

// A logit's weight beside the highest one's, which is 1 at any temperature, however it is rounded.
inline float weight_of(float logit, float most, float scale) {
    return exp_below((logit - most) * scale);
}

// The sum of the weights beside the highest, `most`.
RA_WIDE double weigh(const float * logits, int n, float most, float scale) {
    float lanes[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) lanes[j] += weight_of(logits[i + j], most, scale);
    }
    double sum = 0;
    for (; i < n; i++) sum += weight_of(logits[i], most, scale);
    for (int j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

// The weights beside the highest, `most`, of those that are not below `least`; 0 for the others. Returns their sum.
RA_WIDE double weigh_into(float * weights, const float * logits, int n, float most, float scale, float least) {
    double sum = 0;
    for (int from = 0; from < n; from += BLOCK) {
        const int to = n - from < BLOCK ? n : from + BLOCK;
        float lanes[LANES] = {0};
        int i = from;
        for (; i + LANES <= to; i += LANES) {
            for (int j = 0; j < LANES; j++) {
                const float weight = weight_of(logits[i + j], most, scale);
                weights[i + j] = logits[i + j] >= least ? weight : 0.0f;
                lanes[j] += weights[i + j];
            }
        }
        for (; i < to; i++) {
            weights[i] = logits[i] >= least ? weight_of(logits[i], most, scale) : 0.0f;
            sum += weights[i];
        }
        for (int j = 0; j < LANES; j++) sum += lanes[j];
    }
    return sum;
}

struct Above {
    // Tokens, and their weights together.
    int count;
    double sum;
};

RA_WIDE Above above(const float * weights, const float * logits, int n, float floor) {
    Above all{0, 0};
    for (int from = 0; from < n; from += BLOCK) {
        const int to = n - from < BLOCK ? n : from + BLOCK;
        float lanes[LANES] = {0};
        int32_t counts[LANES] = {0};
        int i = from;
        for (; i + LANES <= to; i += LANES) {
            for (int j = 0; j < LANES; j++) {
                const bool in = logits[i + j] > floor;
                lanes[j] += in ? weights[i + j] : 0.0f;
                counts[j] += in;
            }
        }
        for (; i < to; i++) {
            if (!(logits[i] > floor)) continue;
            all.sum += weights[i];
            all.count++;
        }
        for (int j = 0; j < LANES; j++) {
            all.sum += lanes[j];
            all.count += counts[j];
        }
    }
    return all;
}

Napi::Value array_of(Napi::Env env, const std::vector<int32_t> & numbers) {
    auto result = Napi::Int32Array::New(env, numbers.size());
    std::memcpy(result.Data(), numbers.data(), numbers.size() * sizeof(int32_t));
    return result;
}

RA_WIDE bool any_between(const float * logits, int n, float low, float high) {
    int32_t any = 0;
    for (int i = 0; i < n; i++) any |= (logits[i] > low) & (logits[i] <= high);
    return any != 0;
}

// How one reply's tokens are chosen, and its random numbers: those that llama.cpp's own samplers would draw from the seed, for
// the same tokens, but for rounding.
class RaPicker : public Napi::ObjectWrap<RaPicker> {
    public:
        // Temperature, seed, top_p, frequency penalty, presence penalty.
        explicit RaPicker(const Napi::CallbackInfo & info)
            : Napi::ObjectWrap<RaPicker>(info),
              temperature(info[0].As<Napi::Number>().FloatValue()),
              topP(info[2].As<Napi::Number>().FloatValue()),
              frequency(info[3].As<Napi::Number>().FloatValue()),
              presence(info[4].As<Napi::Number>().FloatValue()),
              random(info[1].As<Napi::Number>().Uint32Value()) {
            if (penalizes()) Napi::MemoryManagement::AdjustExternalMemory(info.Env(), PENALIZED_BYTES);
        }
        void Finalize(Napi::Env env) override {
            if (penalizes()) Napi::MemoryManagement::AdjustExternalMemory(env, -PENALIZED_BYTES);
        }

        // Changes the logits where penalties do.
        int32_t pick(float * logits, int n) {
            if (!penalizes()) return choose(logits, n);
            for (const auto & [token, count] : counts) {
                if (token < n) logits[token] -= static_cast<float>(count) * frequency + presence;
            }
            const int32_t token = choose(logits, n);
            counts[token]++;
            said.push_back(token);
            return token;
        }

        // All that it picked, where there are penalties.
        Napi::Value picked(const Napi::CallbackInfo & info) { return array_of(info.Env(), said); }

    private:
        struct Block {
            // The highest logit.
            float most;
            // Of its tokens' weights, by the highest of all.
            double sum;
        };

        struct Candidate {
            float logit;
            float weight;
            int32_t token;
        };

        // What a penalized completion of 2,000 tokens takes, for the collector of JavaScript, which sees nothing of it.
        static constexpr int64_t PENALIZED_BYTES = 1 << 16;
        // Among so few the one looked for is found by sorting.
        static constexpr int FEW = 64;
        // So far below the highest there is no weight.
        static constexpr float NO_WEIGHT = 88.0f;
        // What is no further below it is nearly always all that top_p keeps, and few enough to be sorted at once.
        static constexpr float NEARBY[] = {3.0f, 6.0f, 12.0f};
        static constexpr int MANY = 256;
        // Tokens that are looked at one by one where one of them is looked for.
        static constexpr int GROUP = 64;

        const float temperature;
        const float topP;
        const float frequency;
        const float presence;
        std::mt19937 random;
        std::vector<Block> blocks;
        // The completion, and how often each token is in it.
        std::vector<int32_t> said;
        std::unordered_map<int32_t, int32_t> counts;

        bool penalizes() const { return frequency != 0.0f || presence != 0.0f; }

        int32_t choose(const float * logits, int n) {
            if (temperature <= 0.0f) return argmax(logits, n);
            const float scale = std::fmin(1.0f / temperature, std::numeric_limits<float>::max());
            const double share = std::uniform_real_distribution<double>(0.0, 1.0)(random);
            return topP < 1.0f ? draw_top(logits, n, scale, share) : draw(logits, n, scale, share);
        }

        // In the order of the tokens.
        int32_t draw(const float * logits, int n, float scale, double share) {
            // Each block by its own highest, so that the logits, which are in no near cache, are read once.
            blocks.clear();
            float most = -INFINITY;
            for (int from = 0; from < n; from += BLOCK) {
                const int length = n - from < BLOCK ? n - from : BLOCK;
                const float here = highest(logits + from, length);
                blocks.push_back({here, here > -INFINITY ? weigh(logits + from, length, here, scale) : 0});
                most = here > most ? here : most;
            }
            double total = 0;
            for (auto & block : blocks) total += block.sum *= weight_of(block.most, most, scale);
            return find(logits, n, most, scale, total * share);
        }

        // The token in which the running sum of the weights gets to `target`.
        int32_t find(const float * logits, int n, float most, float scale, double target) const {
            double sum = 0;
            size_t block = 0;
            while (block + 1 < blocks.size() && sum + blocks[block].sum < target) sum += blocks[block++].sum;
            int32_t last = 0;
            for (int i = static_cast<int>(block) * BLOCK; i < n; i++) {
                const float weight = weight_of(logits[i], most, scale);
                if (weight == 0.0f) continue;
                last = i;
                sum += weight;
                if (sum >= target) break;
            }
            return last;
        }

        // Highest first, of the fewest that together have a probability of top_p. The temperature comes after, as llama.cpp
        // has it.
        int32_t draw_top(const float * logits, int n, float scale, double share) const {
            const float most = highest(logits, n);
            if (!(most > -INFINITY)) return argmax(logits, n);
            static thread_local std::vector<float> weights;
            static thread_local std::vector<Candidate> few;
            weights.resize(n);
            const double target = topP * weigh_into(weights.data(), logits, n, most, 1.0f, -INFINITY);
            for (const float below : NEARBY) {
                const Above near = above(weights.data(), logits, n, most - below);
                if (near.count > MANY) break;
                if (near.sum < target) continue;
                between(few, weights.data(), logits, n, most - below, most);
                few.resize(reached(few, 0, target) + 1);
                double kept = 0;
                for (auto & each : few) kept += each.weight = weight_of(each.logit, most, scale);
                return few[reached(few, 0, kept * share)].token;
            }
            const size_t last = reach(few, weights.data(), logits, n, most, most - NO_WEIGHT, target);
            const float least = few[last].logit;
            double kept = weigh_into(weights.data(), logits, n, most, scale, least);
            for (size_t i = last + 1; i < few.size() && few[i].logit == least; i++) {
                kept -= weights[few[i].token];
                weights[few[i].token] = 0.0f;
            }
            return few[reach(few, weights.data(), logits, n, most, least, kept * share)].token;
        }

        // Of all tokens that are not below `least` the one in which the running sum of the weights, highest first, gets to
        // `target`: where it is in `few`, which then has those around it. Sorted are only these: what is left is halved, by
        // logit, until there are no more, and each half takes a pass.
        static size_t reach(
            std::vector<Candidate> & few, const float * weights, const float * logits, int n,
            float most, float least, double target
        ) {
            // Those above `low` get there, or are all there are; those above `high` do not.
            float low = std::nextafter(least, -INFINITY);
            float high = most;
            Above enough = above(weights, logits, n, low);
            Above less{0, 0};
            while (enough.count - less.count > FEW) {
                const float middle = low + (high - low) / 2;
                // Nothing lies between: they are all as high.
                if (!(middle > low && middle < high)) break;
                const Above half = above(weights, logits, n, middle);
                (half.sum >= target ? enough : less) = half;
                (half.sum >= target ? low : high) = middle;
            }
            between(few, weights, logits, n, low, high);
            return reached(few, less.sum, target);
        }

        // Those above `low` and not above `high`, highest first, the highest of all among them if no other is.
        static void between(
            std::vector<Candidate> & few, const float * weights, const float * logits, int n, float low, float high
        ) {
            few.clear();
            for (int from = 0; from < n; from += GROUP) {
                const int to = n - from < GROUP ? n : from + GROUP;
                if (!any_between(logits + from, to - from, low, high)) continue;
                for (int i = from; i < to; i++) {
                    if (logits[i] > low && logits[i] <= high && weights[i] > 0.0f) few.push_back({logits[i], weights[i], i});
                }
            }
            if (few.empty()) {
                const int32_t first = argmax(logits, n);
                few.push_back({logits[first], weights[first], first});
            }
            std::sort(few.begin(), few.end(), [](const Candidate & a, const Candidate & b) {
                return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
            });
        }

        // Where `sum` and the weights together get to `target`, or the last.
        static size_t reached(const std::vector<Candidate> & few, double sum, double target) {
            size_t at = 0;
            while (at + 1 < few.size() && (sum += few[at].weight) < target) at++;
            return at;
        }
};

// Threads that pick beside the one that decodes, at most, and the logits that are worth one.
struct Spread {
    size_t threads = 0;
    size_t logits = 1;
};
Spread spread;

// Decodes and their picks. Of each part: sequence, first position, tokens, and whether its last token's logits are wanted.
class Picks {
    public:
        explicit Picks(const Napi::CallbackInfo & info)
            : context(Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>())) {
            const auto parts = info[1].As<Napi::Int32Array>();
            const auto given = info[2].As<Napi::Int32Array>();
            const auto wrapped = info[3].As<Napi::Array>();
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
                wanted[positions.size() - 1] = part[3] != 0;
                rows.push_back(static_cast<int32_t>(positions.size()) - 1);
                const Napi::Value picker = wrapped.Get(static_cast<uint32_t>(at / PART));
                pickers.push_back(picker.IsObject() ? Napi::ObjectWrap<RaPicker>::Unwrap(picker.As<Napi::Object>()) : nullptr);
            }
            if (positions.size() != length) throw Napi::RangeError::New(info.Env(), "tokens");
        }

        // From here to `release` nothing of it is collected.
        void hold() {
            context->Ref();
            for (auto * picker : pickers) if (picker != nullptr) picker->Ref();
        }
        void release() {
            for (auto * picker : pickers) if (picker != nullptr) picker->Unref();
            context->Unref();
        }

        // Throws in the words that engine/scheduler/faults.ts knows the addon's own decode by; nothing was then picked.
        void run() {
            context->sharedSamplerData.gotLogit = false;
            context->sharedSamplerData.hasLogits = false;
            counts.assign(tokens.size(), 1);
            for (auto & sequence : sequences) sequenceOf.push_back(&sequence);
            step();
        }

        // After `run`: the step after it, which has its picks for tokens. False: there is none, for a part picked nothing or an
        // end token; or what stops it will be met by whoever asks for it next.
        bool run_on() {
            if (tokens.size() != picks.size()) return false;
            for (const int32_t pick : picks) {
                if (pick < 0 || llama_vocab_is_eog(vocabulary(), pick)) return false;
            }
            tokens = picks;
            for (auto & position : positions) position++;
            try {
                step();
            } catch (const std::exception &) {
                // Of sequences that are no neighbours some may have been done.
                auto * memory = llama_get_memory(context->ctx);
                for (size_t i = 0; i < positions.size(); i++) llama_memory_seq_rm(memory, sequences[i], positions[i], -1);
                return false;
            }
            return true;
        }

        // Of the last step, by part; -1: none.
        const std::vector<int32_t> & picked() const { return picks; }

    private:
        // Numbers of a part in the array that describes them.
        static constexpr size_t PART = 4;

        void step() {
            llama_batch batch{};
            batch.n_tokens = static_cast<int32_t>(tokens.size());
            batch.token = tokens.data();
            batch.pos = positions.data();
            batch.n_seq_id = counts.data();
            batch.seq_id = sequenceOf.data();
            batch.logits = wanted.data();
            const int result = llama_decode(context->ctx, batch);
            if (result == 1) throw std::runtime_error("could not find a KV slot for the batch");
            if (result != 0) throw std::runtime_error("Eval has failed");
            llama_synchronize(context->ctx);
            pick();
        }

        // Where there is much to read some threads share it: each reply has a picker to itself.
        void pick() {
            const int n = llama_vocab_n_tokens(vocabulary());
            picks.assign(rows.size(), -1);
            std::vector<float *> logits(rows.size(), nullptr);
            for (size_t i = 0; i < rows.size(); i++) {
                if (pickers[i] != nullptr) logits[i] = llama_get_logits_ith(context->ctx, rows[i]);
            }
            std::atomic<size_t> next = 0;
            const auto work = [&] {
                for (size_t i; (i = next++) < rows.size();) {
                    if (logits[i] != nullptr) picks[i] = pickers[i]->pick(logits[i], n);
                }
            };
            std::vector<std::thread> others;
            try {
                const size_t worth = rows.size() * n / spread.logits;
                while (others.size() < spread.threads && others.size() + 1 < worth) others.emplace_back(work);
            } catch (const std::system_error &) {
                // There is no room for one more, and no need.
            }
            work();
            for (auto & other : others) other.join();
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
        std::vector<int32_t> picks;
};

// What a run and the thread that looks after it share.
class Made {
    public:
        void add(const std::vector<int32_t> & picks) {
            const std::lock_guard<std::mutex> lock(mutex);
            numbers.insert(numbers.end(), picks.begin(), picks.end());
        }
        // Picks that nobody has seen yet, step after step.
        std::vector<int32_t> take() {
            const std::lock_guard<std::mutex> lock(mutex);
            return std::exchange(numbers, {});
        }

        std::atomic<bool> halted = false;

    private:
        std::mutex mutex;
        std::vector<int32_t> numbers;
};

// Where all decodes are made: always the same thread, one for the process. It stays on its core, and what it reads in that
// core's cache. Threads of the pool take turns, each where it was last or where there is room: of eight callers of a small model
// that takes 7 % of the tokens. Short decodes on the thread that JavaScript runs on, to save two threads' waking, take 5 %: that
// one is on a core that others have work for.
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
        // Waits for the step under way: at the end of the process all that it reads is taken down.
        void end() {
            {
                const std::lock_guard<std::mutex> lock(mutex);
                ended = true;
            }
            some.notify_one();
            if (thread.joinable()) thread.join();
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

// Never taken down. Asked for only once there is a context: what is registered last is called first at the process's end, so
// the thread is over before whatever llama.cpp has made by then. What decodes make later goes earlier: whoever can calls `leave`.
Worker & worker() {
    static auto * only = [] {
        std::atexit([] { worker().end(); });
        return new Worker;
    }();
    return *only;
}

// Step after step on the worker, while this thread looks at what they picked: each step's tokens are the picks of the one
// before, so nobody has to be asked in between. Nor is anybody told: on a virtual machine to wake a thread keeps the one that
// wakes it from its steps.
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
            run.Set("halt", Napi::Function::New(deferred.Env(), [made = made](const Napi::CallbackInfo &) {
                made->halted = true;
            }));
            return run;
        }

        // On the worker.
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
            made->add(picks.picked());
            for (uint32_t steps = 1; steps < most && goes_on() && picks.run_on(); steps++) made->add(picks.picked());
        }

        // On the thread that asked for it, once it is made.
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

// The way back from the worker, for all runs of one JavaScript. While there is one the event loop goes on.
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
            // Without it nothing can be told any more: JavaScript is at its end.
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

// Compute threads that wait for the next decode, whichever thread makes it, for a while without sleep. Without them each decode
// starts its own and ends them, which of a small model's is most of the time. They live as long as the process, as the worker
// does, which begins here: whoever keeps threads on cores finds all.
void useThreads(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    const int32_t threads = info[1].As<Napi::Number>().Int32Value();
    spread.threads = info[2].As<Napi::Number>().Uint32Value();
    spread.logits = std::max<uint32_t>(1, info[3].As<Napi::Number>().Uint32Value());
    worker().begin();
    if (threads < 2) return;
    auto * cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    auto * make = cpu == nullptr ? nullptr : reinterpret_cast<decltype(ggml_threadpool_new) *>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_threadpool_new"));
    if (make == nullptr) return;
    auto params = ggml_threadpool_params_default(threads);
    params.poll = POLL;
    auto * pool = make(&params);
    if (pool != nullptr) llama_attach_threadpool(context->ctx, pool, pool);
}

// At the end of JavaScript, while all that a decode reads or has made is there: no step begins any more.
void leave(const Napi::CallbackInfo &) {
    worker().end();
}

} // namespace

// Called at the end of the addon's own registration.
void raInit(Napi::Object exports) {
    const Napi::Env env = exports.Env();
    exports.Set("raVersion", Napi::Number::New(env, VERSION));
    exports.Set("RaPicker", RaPicker::DefineClass(env, "RaPicker", {RaPicker::InstanceMethod<&RaPicker::picked>("picked")}));
    exports.Set("raUseThreads", Napi::Function::New(env, useThreads, "raUseThreads"));
    exports.Set("raLeave", Napi::Function::New(env, leave, "raLeave"));
    exports.Set("raDecodeRun", Napi::Function::New(env, decodeRun, "raDecodeRun", new Runs(env)));
}
