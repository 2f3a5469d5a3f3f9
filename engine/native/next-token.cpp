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
#include <chrono>
#include <cmath>
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
#include "places.h"
#include "speculation.h"

ggml_threadpool * raThreadpool(int32_t threads);

namespace {

// Some 131,072 polls of each, 2 to 6 ms: longer than the time between two steps.
constexpr uint32_t POLL = 1;

// A mask of tokens; null: none was given.
const uint32_t * bits_of(Napi::Env env, const Napi::Value & given, int n) {
    if (!given.IsTypedArray()) return nullptr;
    const auto array = given.As<Napi::Uint32Array>();
    if (array.ElementLength() * 32 < static_cast<size_t>(n)) throw Napi::RangeError::New(env, "allowed");
    return array.Data();
}

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

// The tokens of one decode.
class Batch {
    public:
        Batch() = default;
        // A closed account's prompt stays in no memory.
        ~Batch() { clear(); }
        Batch(const Batch &) = delete;
        Batch & operator=(const Batch &) = delete;

        std::vector<llama_token> tokens;
        std::vector<llama_pos> positions;
        std::vector<llama_seq_id> sequences;
        // Whether the logits after a token are wanted.
        std::vector<int8_t> wanted;

        size_t size() const { return tokens.size(); }

        void reserve(size_t count) {
            tokens.reserve(count);
            positions.reserve(count);
            sequences.reserve(count);
            wanted.reserve(count);
        }

        void add(llama_token token, llama_pos position, llama_seq_id sequence, bool logits) {
            tokens.push_back(token);
            positions.push_back(position);
            sequences.push_back(sequence);
            wanted.push_back(logits);
        }

        void clear() {
            explicit_bzero(tokens.data(), tokens.size() * sizeof(llama_token));
            tokens.clear();
            positions.clear();
            sequences.clear();
            wanted.clear();
        }

        // Valid until the next change.
        llama_batch view() {
            counts.assign(size(), 1);
            sequenceOf.clear();
            for (auto & sequence : sequences) sequenceOf.push_back(&sequence);
            llama_batch batch{};
            batch.n_tokens = static_cast<int32_t>(size());
            batch.token = tokens.data();
            batch.pos = positions.data();
            batch.n_seq_id = counts.data();
            batch.seq_id = sequenceOf.data();
            batch.logits = wanted.data();
            return batch;
        }

    private:
        std::vector<int32_t> counts;
        std::vector<llama_seq_id *> sequenceOf;
};

// Decodes and picks. For each part: sequence, first position, tokens, and whether its last token's logits are needed, or ALL_LOGITS; of
// tokens that only close a gap between the parts' sequences GAP. A step of one token a part may have drafts of the next ones
// (speculation.h): each sequence then has as many more tokens, and each part has up to as many more picks.
class Picks {
    public:
        explicit Picks(const Napi::CallbackInfo & info)
            : context(Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>())),
              costs(info[8].IsObject() ? Napi::ObjectWrap<RaStepCosts>::Unwrap(info[8].As<Napi::Object>()) : nullptr),
              reserve(info[9].IsNumber() ? info[9].As<Napi::Number>().Uint32Value() : 1),
              most_ms(info[10].IsNumber() ? info[10].As<Napi::Number>().DoubleValue() : INFINITY) {
            const auto most = info[4].As<Napi::Uint32Array>();
            const auto parts = info[1].As<Napi::Int32Array>();
            const auto given = info[2].As<Napi::Int32Array>();
            const auto wrapped = info[3].As<Napi::Array>();
            const auto asked = info[5].As<Napi::Array>();
            masks = Napi::Persistent(info[6].As<Napi::Array>());
            if (info[11].IsArray()) masks_again = Napi::Persistent(info[11].As<Napi::Array>());
            if (info[12].IsArray()) standings = Napi::Persistent(info[12].As<Napi::Array>());
            const size_t length = given.ElementLength();
            fed.reserve(length);
            for (size_t at = 0; at + PART <= parts.ElementLength(); at += PART) {
                const int32_t * part = parts.Data() + at;
                if (part[2] <= 0 || fed.size() + part[2] > length) throw Napi::RangeError::New(info.Env(), "tokens");
                for (int32_t i = 0; i < part[2]; i++) fed.add(given[fed.size()], part[1] + i, part[0], false);
                const auto last = static_cast<int32_t>(fed.size()) - 1;
                if (part[3] == GAP) {
                    for (int32_t at = last - part[2] + 1; at <= last; at++) gaps.push_back(at);
                    continue;
                }
                if (part[3] == ALL_LOGITS) std::fill(fed.wanted.end() - part[2], fed.wanted.end(), 1);
                fed.wanted[last] = part[3] != 0;
                const auto index = static_cast<uint32_t>(rows.size());
                allowed.push_back(mask_of(info.Env(), masks, index));
                again.push_back(mask_of(info.Env(), masks_again, index));
                held.push_back(held_at(info.Env(), index));
                const Napi::Value named = asked.Get(index);
                if (named.IsTypedArray()) {
                    const auto array = named.As<Napi::Uint32Array>();
                    labels.emplace_back(array.Data(), array.Data() + array.ElementLength());
                } else {
                    labels.emplace_back();
                }
                rows.push_back(last);
                left.push_back(index < most.ElementLength() ? std::max<uint32_t>(1, most[index]) : 1);
                pickers.push_back(unwrapped<RaPicker>(wrapped.Get(index)));
                drafts.push_back(info[7].IsArray() ? unwrapped<RaDrafts>(info[7].As<Napi::Array>().Get(index)) : nullptr);
            }
            if (fed.size() != length) throw Napi::RangeError::New(info.Env(), "tokens");
            speculates = costs != nullptr && fed.size() == rows.size() + gaps.size();
            for (size_t i = 0; i < rows.size(); i++) {
                // Where its place is not known, its masks are those of this step alone.
                if (held[i].places != nullptr && !stand(i)) held[i].places = nullptr;
                holds = holds || held[i].places != nullptr;
                speculates = speculates && pickers[i] != nullptr && (allowed[i] == nullptr || drafts_here(i));
            }
        }
        Picks(const Picks &) = delete;
        Picks & operator=(const Picks &) = delete;

        // From here to `release` it is not garbage collected.
        void hold() {
            context->Ref();
            if (costs != nullptr) costs->Ref();
            for (auto * picker : pickers) if (picker != nullptr) picker->Ref();
            for (auto * each : drafts) if (each != nullptr) each->Ref();
        }
        void release() {
            for (auto * each : drafts) if (each != nullptr) each->Unref();
            for (auto * picker : pickers) if (picker != nullptr) picker->Unref();
            if (costs != nullptr) costs->Unref();
            context->Unref();
        }

        // Throws the messages that engine/scheduler/faults.ts knows from the addon's own decode; nothing was then picked.
        void run() {
            context->sharedSamplerData.gotLogit = false;
            context->sharedSamplerData.hasLogits = false;
            try {
                step();
            } catch (...) {
                if (more > 0) take_back();
                throw;
            }
        }

        // After `run`: the next step, whose tokens are its last picks. False: there is none, since a part picked nothing or an
        // end token, or may not have as many more as are reserved, or stands where its grammar's mask is not known, or drafts would pay in a
        // step of held parts that JavaScript makes; an error is then met by the next caller.
        bool run_on() {
            if (lost || fed.size() != rows.size() + gaps.size()) return false;
            for (size_t i = 0; i < rows.size(); i++) {
                if (picks[i].size() >= left[i] || left[i] - picks[i].size() < reserve) return false;
            }
            for (const auto & each : picks) {
                if (each.back() < 0 || llama_vocab_is_eog(vocabulary(), each.back())) return false;
            }
            for (size_t i = 0; i < rows.size(); i++) {
                if (held[i].places == nullptr ? allowed[i] != nullptr : !goes_on(i, picks[i].back())) return false;
            }
            for (size_t i = 0; i < rows.size(); i++) {
                fed.tokens[rows[i]] = picks[i].back();
                fed.positions[rows[i]] += static_cast<llama_pos>(picks[i].size());
                left[i] -= static_cast<uint32_t>(picks[i].size());
            }
            if (holds && !speculates && costs != nullptr && drafts_pay()) return false;
            try {
                step();
            } catch (const std::exception &) {
                // Sequences that are not contiguous may be partly done.
                take_back();
                return false;
            }
            return true;
        }

        // Of each part with labels, their log-probabilities after the last step.
        std::vector<std::vector<double>> taken_scores() { return std::move(scores); }

        // Of the last step: for each part the number of its picks, of its drafts, and the picks; -1: none; NOT_A_NUMBER.
        std::vector<int32_t> picked() const {
            std::vector<int32_t> numbers;
            for (size_t i = 0; i < picks.size(); i++) {
                numbers.push_back(static_cast<int32_t>(picks[i].size()));
                numbers.push_back(drafted[i]);
                numbers.insert(numbers.end(), picks[i].begin(), picks[i].end());
            }
            return numbers;
        }

    private:
        // Numbers per part in the array that describes them.
        static constexpr size_t PART = 4;
        // The last of them.
        static constexpr int32_t GAP = 2;
        static constexpr int32_t ALL_LOGITS = 3;
        // Logits of one decode with drafts, at most: 64 MiB, which llama.cpp keeps from then on.
        static constexpr size_t MOST_LOGITS = 1 << 24;
        // Of one step with drafts: where they have no room in one decode, some of the sequences are decoded after the others.
        static constexpr size_t MOST_DECODES = 2;

        template <typename Wrapped> static Wrapped * unwrapped(const Napi::Value & value) {
            return value.IsObject() ? Napi::ObjectWrap<Wrapped>::Unwrap(value.As<Napi::Object>()) : nullptr;
        }

        // Valid as long as `all` is held. Nothing changes a mask.
        const uint32_t * mask_of(Napi::Env env, const Napi::Reference<Napi::Array> & all, uint32_t index) const {
            return all.IsEmpty() ? nullptr : bits_of(env, all.Value().Get(index), llama_vocab_n_tokens(vocabulary()));
        }

        // A part whose grammar's place is known. Without `places`: its masks are given with each step, or it has none.
        struct Held {
            RaPlaces * places = nullptr;
            int32_t at = 0;
            // Tokens that are texts, which is all that a grammar allows.
            const uint32_t * text = nullptr;
            // Whether JavaScript may draft for it, so that a run ends where drafts would pay; otherwise runs do, as far as masks are known.
            bool drafts = true;
            std::shared_ptr<const Place> place;
            // What may come, without what is no text.
            std::vector<uint32_t> may;
        };

        // Valid as long as `standings` is held.
        Held held_at(Napi::Env env, uint32_t index) const {
            Held made;
            const Napi::Value given = standings.IsEmpty() ? env.Undefined() : standings.Value().Get(index);
            if (!given.IsObject()) return made;
            const auto standing = given.As<Napi::Object>();
            made.places = unwrapped<RaPlaces>(standing.Get("places"));
            made.at = standing.Get("at").As<Napi::Number>().Int32Value();
            made.text = bits_of(env, standing.Get("text"), llama_vocab_n_tokens(vocabulary()));
            if (made.text == nullptr) throw Napi::RangeError::New(env, "text");
            made.drafts = standing.Get("drafts").ToBoolean();
            return made;
        }

        // Takes the masks of the place where a part stands. False: they are not known, or nothing may come.
        bool stand(size_t i) {
            auto & each = held[i];
            each.place = each.places->find(each.at);
            const auto words = static_cast<size_t>(llama_vocab_n_tokens(vocabulary()) + LANES - 1) / LANES;
            if (each.place == nullptr || each.place->may.size() != words) return false;
            uint32_t any = 0;
            each.may.resize(words);
            for (size_t word = 0; word < words; word++) any |= each.may[word] = each.place->may[word] & each.text[word];
            if (any == 0) return false;
            allowed[i] = each.place->narrow ? each.may.data() : each.text;
            again[i] = each.place->narrow ? nullptr : each.may.data();
            if (drafts[i] != nullptr && !each.drafts) drafts[i]->stand(each.places, each.at);
            return true;
        }

        // Moves a part to the place after this pick.
        bool goes_on(size_t i, int32_t pick) {
            held[i].at = held[i].place->after(held[i].at, pick);
            return stand(i);
        }

        // Whether the steps of a run may have drafts of a part that is held.
        bool drafts_here(size_t i) const { return held[i].places != nullptr && !held[i].drafts; }

        // Of a part's next drafts, up to `most`, those that may come and after which its masks are known. `repeats`: and where its reply has
        // stood before, so that their number does not depend on what other replies made known.
        int32_t followed(size_t i, int32_t most, bool repeats) const {
            std::vector<llama_token> words(most);
            const int32_t count = drafts[i]->draft(most, words.data());
            int32_t at = held[i].at;
            auto place = held[i].place;
            int32_t known = 0;
            for (; known < count && has(place->may.data(), words[known]) && has(held[i].text, words[known]); known++) {
                at = place->after(at, words[known]);
                place = held[i].places->find(at);
                if (place == nullptr || (repeats && !drafts[i]->stood(held[i].places, at))) break;
            }
            explicit_bzero(words.data(), words.size() * sizeof(llama_token));
            return known;
        }

        void feed_drafts() {
            for (size_t i = 0; i < rows.size(); i++) {
                const auto at = rows[i];
                if (drafts[i] != nullptr) drafts[i]->feed(fed.positions[at], fed.tokens[at]);
            }
        }

        bool drafts_pay() {
            feed_drafts();
            return choose() > 0;
        }

        void step() {
            feed_drafts();
            const size_t choice = speculates ? choose() : 0;
            more = DRAFT_LENGTHS[choice];
            drafted.assign(rows.size(), 0);
            picks.assign(rows.size(), {});
            scores.assign(rows.size(), {});
            const auto from = std::chrono::steady_clock::now();
            const size_t together = more > 0 ? most_tokens() / (more + 1) : fed.size();
            kept.clear();
            for (size_t i = 0; together < fed.size() && i < pickers.size(); i++) kept.push_back(pickers[i]->state());
            for (first = 0; first < fed.size(); first += together) {
                if (more > 0) widen(std::min(first + together, fed.size()));
                const int result = decode(more > 0 ? wide : fed);
                if (result == 1) throw std::runtime_error("could not find a KV slot for the batch");
                if (result != 0) throw std::runtime_error("Eval has failed");
                llama_synchronize(context->ctx);
                pick();
            }
            if (!speculates) return;
            const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - from;
            costs->costs.learn(fed.size(), choice, took.count());
            settle();
        }

        // The index of how many tokens each sequence drafts. A part that may have fewer gains less by them, and the others do not wait.
        size_t choose() {
            follows.assign(rows.size(), DRAFT_LENGTHS.back());
            size_t last = 0;
            for (size_t choice = 1; choice < DRAFT_CHOICES; choice++) {
                const auto length = static_cast<size_t>(DRAFT_LENGTHS[choice]);
                const size_t together = most_tokens() / (length + 1);
                if (fed.size() > (speculates ? MOST_DECODES : 1) * together || !has_room(length)) break;
                last = choice;
            }
            if (last == 0) return 0;
            const bool may_vary = std::all_of(drafts.begin(), drafts.end(), [](const RaDrafts * each) { return each != nullptr && each->may_vary; });
            ByDraftLength expected{};
            for (size_t i = 0; i < rows.size(); i++) {
                ByDraftLength tokens_of;
                if (drafts[i] == nullptr || (!speculates && !held[i].drafts)) tokens_of.fill(1);
                else tokens_of = drafts[i]->expected(may_vary || fed.size() > 1);
                if (drafts_here(i) && tokens_of[last] > 1) follows[i] = followed(i, DRAFT_LENGTHS[last], fed.size() == 1 && !may_vary);
                const double most = std::min<double>(left[i], follows[i] + 1);
                for (size_t choice = 0; choice <= last; choice++) expected[choice] += std::min(tokens_of[choice], most);
            }
            return costs->costs.choose(fed.size(), expected, last, most_ms, may_vary);
        }

        // Of one decode with drafts.
        size_t most_tokens() const {
            return std::min<size_t>(llama_n_batch(context->ctx), MOST_LOGITS / llama_vocab_n_tokens(vocabulary()));
        }

        // Whether each sequence can hold so many drafts after its token.
        bool has_room(size_t length) const {
            const size_t cells = llama_n_ctx_seq(context->ctx);
            return std::all_of(fed.positions.begin(), fed.positions.end(), [&](llama_pos position) {
                return static_cast<size_t>(position) + length < cells;
            });
        }

        // After each sequence's token as many drafts, of the sequences from `first` to `end`; where there are too few, any tokens, which
        // hardly ever are what is picked.
        void widen(size_t end) {
            wide.clear();
            wide.reserve((end - first) * (more + 1));
            std::vector<llama_token> words(more);
            size_t part = std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(first)) - rows.begin();
            for (size_t at = first; at < end; at++) {
                const bool gap = part >= rows.size() || rows[part] != static_cast<int32_t>(at);
                std::fill(words.begin(), words.end(), fed.tokens[at]);
                if (!gap && drafts[part] != nullptr) {
                    drafted[part] = drafts[part]->draft(std::min<int32_t>({more, static_cast<int32_t>(left[part]) - 1, follows[part]}), words.data());
                }
                wide.add(fed.tokens[at], fed.positions[at], fed.sequences[at], !gap);
                for (int32_t i = 0; i < more; i++) wide.add(words[i], fed.positions[at] + 1 + i, fed.sequences[at], !gap);
                if (!gap) part++;
            }
            explicit_bzero(words.data(), words.size() * sizeof(llama_token));
        }

        // Tokens that close gaps are removed whatever happens.
        int decode(Batch & batch) {
            try {
                const int result = llama_decode(context->ctx, batch.view());
                open_gaps();
                return result;
            } catch (...) {
                open_gaps();
                throw;
            }
        }

        void open_gaps() {
            auto * memory = llama_get_memory(context->ctx);
            for (const int32_t at : gaps) {
                llama_memory_seq_rm(memory, fed.sequences[at], fed.positions[at], fed.positions[at] + 1 + more);
            }
        }

        // Each sequence ends again where it did before the last step, and each picker knows no more of it.
        void take_back() {
            for (size_t i = 0; i < kept.size(); i++) pickers[i]->restore(std::move(kept[i]));
            kept.clear();
            auto * memory = llama_get_memory(context->ctx);
            for (size_t i = 0; i < fed.size(); i++) llama_memory_seq_rm(memory, fed.sequences[i], fed.positions[i], -1);
        }

        // Removes the drafts that were not picked, and tells each reply's drafts what was.
        void settle() {
            auto * memory = llama_get_memory(context->ctx);
            for (size_t i = 0; i < rows.size(); i++) {
                const auto at = rows[i];
                const auto count = static_cast<llama_pos>(picks[i].size());
                if (count <= more) llama_memory_seq_rm(memory, fed.sequences[at], fed.positions[at] + count, -1);
                if (drafts[i] == nullptr) continue;
                for (llama_pos j = 0; j < count && picks[i][j] >= 0; j++) drafts[i]->feed(fed.positions[at] + 1 + j, picks[i][j]);
            }
        }

        // With many logits, several threads share the work: each reply has its own picker. Rows that are read otherwise, for a
        // grammar, are looked at only for whether they hold a number.
        void pick() {
            const int n = llama_vocab_n_tokens(vocabulary());
            const size_t width = more + 1;
            const size_t decoded = more > 0 ? wide.size() / width : fed.size();
            const auto part_at = [&](size_t at) { return std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(at)) - rows.begin(); };
            const size_t from = part_at(first);
            const size_t to = part_at(first + decoded);
            std::vector<float *> logits((to - from) * width, nullptr);
            for (size_t i = from; i < to; i++) {
                if (fed.wanted[rows[i]] == 0) continue;
                for (size_t j = 0; j < width; j++) {
                    logits[(i - from) * width + j] = llama_get_logits_ith(context->ctx, static_cast<int32_t>((rows[i] - first) * width + j));
                }
            }
            std::atomic<size_t> next = from;
            const auto work = [&] {
                for (size_t i; (i = next++) < to;) picks[i] = picks_of(i, &logits[(i - from) * width], n);
            };
            const size_t worth = logits.size() * n / spread.logits;
            helpers().run(worth < 2 ? 0 : std::min<size_t>(spread.threads, worth - 1), work);
        }

        // Of one part, from its rows of logits: the last one is a pick that differs from the draft, or after which no row is left or no
        // further pick may be.
        std::vector<int32_t> picks_of(size_t i, float * const * logits, int n) {
            if (logits[0] == nullptr) return {-1};
            if (pickers[i] == nullptr) {
                if (!labels[i].empty()) scores[i] = log_probabilities(logits[0], n, labels[i]);
                else if (!is_number(highest(logits[0], n))) return {NOT_A_NUMBER};
                return {-1};
            }
            std::vector<int32_t> made;
            const size_t token = (rows[i] - first) * (more + 1);
            // Of a held part no further than its masks are known.
            const int32_t last = std::min<int32_t>(held[i].places == nullptr ? more : drafted[i], left[i] - 1);
            for (int32_t j = 0; j <= last && logits[j] != nullptr; j++) {
                made.push_back(pickers[i]->pick(logits[j], n, allowed[i], again[i]));
                if (j == last || made.back() != wide.tokens[token + j + 1] || llama_vocab_is_eog(vocabulary(), made.back())) break;
                if (held[i].places == nullptr || goes_on(i, made.back())) continue;
                lost = true;
                break;
            }
            return made;
        }

        const llama_vocab * vocabulary() const { return llama_model_get_vocab(llama_get_model(context->ctx)); }

        AddonContext * context;
        RaStepCosts * costs;
        // Of each part, the picks that it may have from the current step on. A further step begins only where each may have `reserve`.
        std::vector<uint32_t> left;
        const uint32_t reserve;
        // What a step of several sequences with drafts may take, ms.
        const double most_ms;
        // Without drafts.
        Batch fed;
        // With them, in a step that has some.
        Batch wide;
        // By part: the index of its last token in `fed`.
        std::vector<int32_t> rows;
        std::vector<RaPicker *> pickers;
        std::vector<RaDrafts *> drafts;
        std::vector<std::vector<uint32_t>> labels;
        // The masks of all parts, which are JavaScript's; of each part a bit for each token of the vocabulary, null: all may be picked.
        Napi::Reference<Napi::Array> masks;
        std::vector<const uint32_t *> allowed;
        // Among these a token is picked in place of one that is none of them.
        Napi::Reference<Napi::Array> masks_again;
        std::vector<const uint32_t *> again;
        // By part. Its masks stand in place of given ones.
        Napi::Reference<Napi::Array> standings;
        std::vector<Held> held;
        // Whether any part has places.
        bool holds = false;
        // A part stands where nothing may come after a draft, which a next step finds out.
        std::atomic<bool> lost = false;
        // Of each part, the drafts that it may have in the present step.
        std::vector<int32_t> follows;
        std::vector<std::vector<double>> scores;
        std::vector<std::vector<int32_t>> picks;
        // Drafts in the last step that were no padding.
        std::vector<int32_t> drafted;
        // Indexes of tokens that close gaps.
        std::vector<int32_t> gaps;
        // Whether its steps may have drafts, and how many each sequence has in the last one.
        bool speculates = false;
        int32_t more = 0;
        // The index in `fed` of the first token of the last decode.
        size_t first = 0;
        // Of pickers before a step of several decodes, a later one of which may fail.
        std::vector<RaPicker::State> kept;
};

// State shared by a run and the thread that polls it.
class Made {
    public:
        void add(const std::vector<int32_t> & picks) {
            const std::lock_guard<std::mutex> lock(mutex);
            const bool is_apart = !numbers.empty() && std::find(picks.begin(), picks.end(), NOT_A_NUMBER) != picks.end();
            auto & into = is_apart ? last : numbers;
            into.insert(into.end(), picks.begin(), picks.end());
        }
        // What Picks::picked gave of the steps that were not polled yet. The last one is left to the next call where it has NOT_A_NUMBER: a
        // part that fails there has its tokens of those before.
        std::vector<int32_t> take() {
            const std::lock_guard<std::mutex> lock(mutex);
            return std::exchange(numbers, std::exchange(last, {}));
        }
        // Of the first step, by part; set before it ends.
        std::vector<std::vector<double>> scores;

        std::atomic<bool> halted = false;

    private:
        std::mutex mutex;
        std::vector<int32_t> numbers;
        std::vector<int32_t> last;
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
              picks(info) {
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
            try {
                while (goes_on() && picks.run_on()) made->add(picks.picked());
            } catch (const std::exception &) {
                // No memory to go on with: what was picked stands.
            }
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

// Context, row, picker, allowed and again, or undefined: a token from these logits. Between decodes.
Napi::Value pickOne(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    auto * picker = Napi::ObjectWrap<RaPicker>::Unwrap(info[2].As<Napi::Object>());
    const int n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context->ctx)));
    float * logits = llama_get_logits_ith(context->ctx, info[1].As<Napi::Number>().Int32Value());
    const uint32_t * allowed = bits_of(info.Env(), info[3], n);
    const uint32_t * again = bits_of(info.Env(), info[4], n);
    if (logits == nullptr) throw Napi::RangeError::New(info.Env(), "logits");
    return Napi::Number::New(info.Env(), picker->pick(logits, n, allowed, again));
}

// Context, row, picker, allowed: in place of the token that the picker picked last, another one from the same logits. Between decodes.
Napi::Value pickAgain(const Napi::CallbackInfo & info) {
    auto * context = Napi::ObjectWrap<AddonContext>::Unwrap(info[0].As<Napi::Object>());
    auto * picker = Napi::ObjectWrap<RaPicker>::Unwrap(info[2].As<Napi::Object>());
    const int n = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context->ctx)));
    float * logits = llama_get_logits_ith(context->ctx, info[1].As<Napi::Number>().Int32Value());
    const uint32_t * allowed = bits_of(info.Env(), info[3], n);
    if (logits == nullptr || allowed == nullptr) throw Napi::RangeError::New(info.Env(), "logits");
    return Napi::Number::New(info.Env(), picker->pick_again(logits, n, allowed));
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
void raPagesInit(Napi::Env, Napi::Object);
void raSpeculationInit(Napi::Env, Napi::Object);

namespace {

Napi::Object init(Napi::Env env, Napi::Object exports) {
    exports.Set("raSources", Napi::String::New(env, RA_SOURCES));
    exports.Set("RaPlaces", RaPlaces::DefineClass(env, "RaPlaces", {
        RaPlaces::InstanceMethod<&RaPlaces::know>("know"),
    }));
    exports.Set("RaPicker", RaPicker::DefineClass(env, "RaPicker", {RaPicker::InstanceMethod<&RaPicker::follow>("follow")}));
    raEmbeddingsInit(exports);
    raPoolingInit(exports);
    raStatesInit(exports);
    raPagesInit(env, exports);
    raSpeculationInit(env, exports);
    exports.Set("raUseThreads", Napi::Function::New(env, useThreads, "raUseThreads"));
    exports.Set("raPick", Napi::Function::New(env, pickOne, "raPick"));
    exports.Set("raPickAgain", Napi::Function::New(env, pickAgain, "raPickAgain"));
    exports.Set("raVocabularySize", Napi::Function::New(env, vocabularySize, "raVocabularySize"));
    exports.Set("raClearMemory", Napi::Function::New(env, clearMemory, "raClearMemory"));
    exports.Set("raLeave", Napi::Function::New(env, leave, "raLeave"));
    exports.Set("raDecodeRun", Napi::Function::New(env, decodeRun, "raDecodeRun", new Runs(env)));
    return exports;
}

} // namespace

NODE_API_MODULE(ra_engine, init)
