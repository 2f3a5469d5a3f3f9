/*
 * How a token is chosen from logits: one pass over them gives the argmax, one gives a draw from the softmax, and some more one from its
 * top_p. Included by next-token.cpp alone.
 */
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "napi.h"

// One compiled file for every x86-64 machine, with the widest vector instructions of the machine it runs on.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define RA_WIDE __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define RA_WIDE
#endif

namespace {

// Independent lanes, so that the compiler may vectorize without reordering sums.
constexpr int LANES = 32;
// Maxima and sums of weights are kept per block, so that a search needs to read one block only.
constexpr int BLOCK = 1024;
// Of sums that are not kept: a lane adds 256 weights of at most 1, so rounding stays below 2^-16 of the sum.
constexpr int LONG_BLOCK = 8192;

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

// In place of a token, where no logit is a number: a GPU's overflow would otherwise be a reply of one token again and again.
constexpr int32_t NOT_A_NUMBER = -2;

// Of the highest logit: it is -INFINITY where none is a number.
inline bool is_number(float most) {
    return most > -INFINITY && most < INFINITY;
}

// The first of the highest logits, as in llama.cpp's greedy sampler. Searched in one block only, since a search with an
// early exit is not vectorized.
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
    for (int i = block; is_number(most) && i < n; i++) {
        if (logits[i] == most) return i;
    }
    return NOT_A_NUMBER;
}

// exp of a value of at most 0, within 2 units in the last place; 0 where a float's exp is nearly 0, and of what is no number.
inline float exp_below(float x) {
    const float clamped = x >= -87.0f ? x : -87.0f;
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
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
    return x >= -87.0f ? p * power : 0.0f;
}

// A logit's weight relative to the highest one's, which is exactly 1 at any temperature.
inline float weight_of(float logit, float most, float scale) {
    return exp_below((logit - most) * scale);
}

// The sum of the weights relative to the highest logit, `most`.
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

// The weights relative to the highest logit, `most`, of those that are at least `least`; 0 for the others. Returns their
// sum.
RA_WIDE double weigh_into(float * __restrict weights, const float * __restrict logits, int n, float most, float scale, float least) {
    double sum = 0;
    for (int from = 0; from < n; from += LONG_BLOCK) {
        const int to = n - from < LONG_BLOCK ? n : from + LONG_BLOCK;
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
    // Tokens, and the sum of their weights.
    int count;
    double sum;
};

RA_WIDE Above above(const float * weights, const float * logits, int n, float floor) {
    Above all{0, 0};
    for (int from = 0; from < n; from += LONG_BLOCK) {
        const int to = n - from < LONG_BLOCK ? n : from + LONG_BLOCK;
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

// Natural log-probabilities of `labels` over the whole vocabulary, in their order: a decision's answer. Not a number where a logit is
// none, and for a label outside the vocabulary.
std::vector<double> log_probabilities(const float * logits, int n, const std::vector<uint32_t> & labels) {
    const double most = highest(logits, n);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += std::exp(static_cast<double>(logits[i]) - most);
    const double total = most + std::log(sum);
    std::vector<double> scores;
    for (const uint32_t label : labels) {
        scores.push_back(label < static_cast<uint32_t>(n) ? logits[label] - total : std::numeric_limits<double>::quiet_NaN());
    }
    return scores;
}

// A bit for each lane. Written with them, a word of comparisons is vectorized.
struct LaneBits {
    uint32_t of[LANES];
    constexpr LaneBits() : of() {
        for (int j = 0; j < LANES; j++) of[j] = 1u << j;
    }
};
constexpr LaneBits LANE_BITS;

// The tokens whose logits are above `low` and at most `high`, in their order; false, and only the first of them, where they are more than
// `many`.
RA_WIDE bool find_between(std::vector<int32_t> & into, const float * logits, int n, float low, float high, size_t many) {
    into.clear();
    int from = 0;
    for (; from + LANES <= n; from += LANES) {
        uint32_t word = 0;
        for (int j = 0; j < LANES; j++) word |= (logits[from + j] > low) & (logits[from + j] <= high) ? LANE_BITS.of[j] : 0;
        if (word == 0) continue;
        for (; word != 0; word &= word - 1) into.push_back(from + __builtin_ctz(word));
        if (into.size() > many) return false;
    }
    for (; from < n; from++) if (logits[from] > low && logits[from] <= high) into.push_back(from);
    return into.size() <= many;
}

inline bool has(const uint32_t * allowed, int token) {
    return (allowed[token >> 5] >> (token & 31)) & 1;
}

// The logits of the tokens whose bit is set, and of no others. A word of bits at a time, so that none is gathered.
RA_WIDE void hold(float * into, const float * logits, int n, const uint32_t * allowed) {
    int from = 0;
    for (; from + LANES <= n; from += LANES) {
        const uint32_t word = allowed[from / LANES];
        for (int j = 0; j < LANES; j++) into[from + j] = (word >> j) & 1 ? logits[from + j] : -INFINITY;
    }
    for (; from < n; from++) into[from] = has(allowed, from) ? logits[from] : -INFINITY;
}

// The tokens whose bit is set, in their order, or, where `flip` is ~0, those whose bit is not; false where they are more than `most`.
inline bool list(std::vector<int32_t> & into, int n, const uint32_t * allowed, uint32_t flip, size_t most) {
    into.clear();
    for (int from = 0; from < n; from += LANES) {
        for (uint32_t word = allowed[from / LANES] ^ flip; word != 0; word &= word - 1) {
            const int token = from + __builtin_ctz(word);
            if (token < n) into.push_back(token);
        }
        if (into.size() > most) return false;
    }
    return true;
}

// The only token whose bit is set; -1: there are several, or none.
inline int32_t only_of(const uint32_t * allowed, int n) {
    int32_t only = -1;
    for (int from = 0; from < n; from += LANES) {
        const uint32_t word = allowed[from / LANES];
        if (word == 0) continue;
        if (only >= 0 || (word & (word - 1)) != 0) return -1;
        only = from + __builtin_ctz(word);
    }
    return only < n ? only : -1;
}

RA_WIDE void hold_above(float * into, const float * logits, int n, float least) {
    for (int i = 0; i < n; i++) into[i] = logits[i] >= least ? logits[i] : -INFINITY;
}

// How one reply's tokens are chosen, and its random numbers: the same tokens that llama.cpp's own samplers would draw from
// the seed, except for rounding. In llama.cpp's order: penalties, top_k, top_p, min_p, temperature. Where only some tokens are
// allowed, the others count as impossible before all of these.
class RaPicker : public Napi::ObjectWrap<RaPicker> {
    public:
        // Temperature, seed, top_p, frequency penalty, presence penalty, top_k and min_p; 0: neither.
        explicit RaPicker(const Napi::CallbackInfo & info)
            : Napi::ObjectWrap<RaPicker>(info),
              temperature(info[0].As<Napi::Number>().FloatValue()),
              topP(info[2].As<Napi::Number>().FloatValue()),
              frequency(info[3].As<Napi::Number>().FloatValue()),
              presence(info[4].As<Napi::Number>().FloatValue()),
              topK(info[5].As<Napi::Number>().Int32Value()),
              minP(info[6].As<Napi::Number>().FloatValue()),
              random(info[1].As<Napi::Number>().Uint32Value()) {
            if (penalizes()) Napi::MemoryManagement::AdjustExternalMemory(info.Env(), PENALIZED_BYTES);
        }
        void Finalize(Napi::Env env) override {
            if (penalizes()) Napi::MemoryManagement::AdjustExternalMemory(env, -PENALIZED_BYTES);
        }

        // Applies penalties to the logits. `allowed`: a bit for each token; null: all are. `again`: what is none of these is replaced by one
        // of them; null: nothing is. Where one alone is allowed, none is drawn.
        int32_t pick(float * logits, int n, const uint32_t * allowed, const uint32_t * again) {
            const int32_t only = allowed == nullptr ? -1 : only_of(allowed, n);
            if (only >= 0) {
                if (told < script.size()) told++;
                return count(only);
            }
            for (const auto & [token, count] : counts) {
                if (count > 0 && token < n) logits[token] -= static_cast<float>(count) * frequency + presence;
            }
            const int32_t chosen = choose_allowed(logits, n, allowed);
            const int32_t token = count(told < script.size() ? script[told++] : chosen);
            return again == nullptr || token == NOT_A_NUMBER || has(again, token) ? token : pick_again(logits, n, again);
        }

        // In place of the token that was picked last, from the same logits.
        int32_t pick_again(float * logits, int n, const uint32_t * allowed) {
            if (counted >= 0) count_of(counted)--;
            return count(choose_allowed(logits, n, allowed));
        }

        // Tokens that the next picks are, whatever the logits: tests and benches say a known text at the cost of picking it.
        void follow(const Napi::CallbackInfo & info) {
            const auto tokens = info[0].As<Napi::Int32Array>();
            script.assign(tokens.Data(), tokens.Data() + tokens.ElementLength());
            told = 0;
        }

        // What picks change, to pick again as if none had been.
        struct State {
            std::mt19937 random;
            std::vector<std::pair<int32_t, int32_t>> counts;
            int32_t counted;
            size_t told;
        };
        State state() const { return {random, counts, counted, told}; }
        void restore(State state) {
            random = state.random;
            counts = std::move(state.counts);
            counted = state.counted;
            told = state.told;
        }

    private:
        struct Block {
            // The highest logit.
            float most;
            // The sums of its tokens' weights, relative to the highest of all.
            double sum;
        };

        struct Candidate {
            float logit;
            float weight;
            int32_t token;
        };

        // The memory of a penalized completion of 2,000 tokens, reported to JavaScript's garbage collector, which does not
        // see it.
        static constexpr int64_t PENALIZED_BYTES = 1 << 14;
        // Up to this many candidates are sorted: that takes as long as one pass more.
        static constexpr int FEW = 192;
        // This far below the highest logit the weight is 0.
        static constexpr float NO_WEIGHT = 88.0f;
        // Candidates within this distance are nearly always all that top_p keeps, and few enough to be sorted at once.
        static constexpr float NEARBY[] = {3.0f, 6.0f, 12.0f};
        static constexpr int MANY = 256;
        // Tokens of the sample by which a search over many candidates begins: sorted in a few microseconds, an error of 6 % at most.
        static constexpr int SAMPLE = 256;

        const float temperature;
        const float topP;
        const float frequency;
        const float presence;
        const int32_t topK;
        const float minP;
        std::mt19937 random;
        std::vector<Block> blocks;
        // Where there are penalties: tokens of the completion, ascending, each with its count, and the last one.
        std::vector<std::pair<int32_t, int32_t>> counts;
        int32_t counted = -1;
        std::vector<int32_t> script;
        size_t told = 0;

        bool penalizes() const { return frequency != 0.0f || presence != 0.0f; }

        int32_t count(int32_t token) {
            if (!penalizes() || token == NOT_A_NUMBER) return token;
            count_of(token)++;
            return counted = token;
        }

        int32_t & count_of(int32_t token) {
            const auto at = std::lower_bound(counts.begin(), counts.end(), std::make_pair(token, INT32_MIN));
            return (at != counts.end() && at->first == token ? at : counts.emplace(at, token, 0))->second;
        }

        // Where few tokens may come, or few may not, hardly more than these are touched.
        int32_t choose_allowed(float * logits, int n, const uint32_t * allowed) {
            if (allowed == nullptr) return choose(logits, n, n);
            static thread_local std::vector<float> held;
            static thread_local std::vector<int32_t> listed;
            held.clear();
            if (list(listed, n, allowed, 0, BLOCK)) {
                for (const int32_t token : listed) held.push_back(logits[token]);
                const int32_t at = choose(held.data(), static_cast<int>(held.size()), n);
                return at < 0 ? at : listed[at];
            }
            if (list(listed, n, allowed, ~0u, BLOCK)) {
                for (const int32_t token : listed) held.push_back(std::exchange(logits[token], -INFINITY));
                const int32_t token = choose(logits, n, n);
                for (size_t i = 0; i < listed.size(); i++) logits[listed[i]] = held[i];
                return token;
            }
            held.resize(n);
            hold(held.data(), logits, n, allowed);
            return choose(held.data(), n, n);
        }

        // `of`: tokens of the vocabulary, of which these may be some.
        int32_t choose(const float * logits, int n, int of) {
            if (temperature <= 0.0f) return argmax(logits, n);
            const float scale = std::fmin(1.0f / temperature, std::numeric_limits<float>::max());
            const double share = std::uniform_real_distribution<double>(0.0, 1.0)(random);
            if (topK > 0 && topK < of) return draw_highest(logits, n, scale, share);
            if (topP < 1.0f) return draw_top(logits, n, scale, share);
            return minP > 0.0f ? draw_probable(logits, n, scale, share) : draw(logits, n, scale, share);
        }

        // Among the top_k highest. Where min_p leaves fewer, it is the smaller of the two, since both keep the highest.
        int32_t draw_highest(const float * logits, int n, float scale, double share) const {
            static thread_local std::vector<Candidate> few;
            const auto before = [](const Candidate & a, const Candidate & b) {
                return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
            };
            // A heap whose first is the lowest.
            few.clear();
            const size_t most_of = static_cast<size_t>(topK);
            for (int from = 0; from < n; from += BLOCK) {
                const int to = n - from < BLOCK ? n : from + BLOCK;
                if (few.size() == most_of && !(highest(logits + from, to - from) > few.front().logit)) continue;
                for (int i = from; i < to; i++) {
                    if (!(logits[i] > (few.size() < most_of ? -INFINITY : few.front().logit))) continue;
                    if (few.size() == most_of) {
                        std::pop_heap(few.begin(), few.end(), before);
                        few.pop_back();
                    }
                    few.push_back({logits[i], 0.0f, i});
                    std::push_heap(few.begin(), few.end(), before);
                }
            }
            if (few.empty()) return NOT_A_NUMBER;
            std::sort_heap(few.begin(), few.end(), before);
            const float most = few.front().logit;
            if (!is_number(most)) return NOT_A_NUMBER;
            double total = 0;
            for (auto & each : few) total += each.weight = weight_of(each.logit, most, 1.0f);
            return draw_among(few, most, scale, share, total);
        }

        // Those that are at least min_p times as probable as the highest, in the order of the tokens, as in llama.cpp.
        int32_t draw_probable(const float * logits, int n, float scale, double share) {
            static thread_local std::vector<float> probable;
            const float most = highest(logits, n);
            if (!is_number(most)) return NOT_A_NUMBER;
            probable.resize(n);
            hold_above(probable.data(), logits, n, most + std::log(minP));
            return draw(probable.data(), n, scale, share);
        }

        // `few`: highest first, with their weights before the temperature. `total`: of all that top_p counts over.
        int32_t draw_among(std::vector<Candidate> & few, float most, float scale, double share, double total) const {
            if (topP < 1.0f) few.resize(reached(few, 0, topP * total) + 1);
            if (minP > 0.0f) {
                const float least = most + std::log(minP);
                while (few.size() > 1 && few.back().logit < least) few.pop_back();
            }
            double kept = 0;
            for (auto & each : few) kept += each.weight = weight_of(each.logit, most, scale);
            return few[reached(few, 0, kept * share)].token;
        }

        // In the order of the tokens.
        int32_t draw(const float * logits, int n, float scale, double share) {
            // Each block relative to its own maximum, so that the logits, which are not in a near cache, are read once.
            blocks.clear();
            float most = -INFINITY;
            for (int from = 0; from < n; from += BLOCK) {
                const int length = n - from < BLOCK ? n - from : BLOCK;
                const float here = highest(logits + from, length);
                blocks.push_back({here, here > -INFINITY ? weigh(logits + from, length, here, scale) : 0});
                most = here > most ? here : most;
            }
            double total = 0;
            if (!is_number(most)) return NOT_A_NUMBER;
            for (auto & block : blocks) total += block.sum *= weight_of(block.most, most, scale);
            return find(logits, n, most, scale, total * share);
        }

        // The token at which the running sum of the weights reaches `target`.
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

        // Highest first, among the fewest that together have a probability of top_p, without those that min_p leaves out. The temperature is
        // applied afterwards, as in llama.cpp.
        int32_t draw_top(const float * logits, int n, float scale, double share) const {
            const float most = highest(logits, n);
            if (!is_number(most)) return NOT_A_NUMBER;
            static thread_local std::vector<float> weights;
            static thread_local std::vector<int32_t> found;
            static thread_local std::vector<Candidate> few;
            weights.resize(n);
            const double total = weigh_into(weights.data(), logits, n, most, 1.0f, -INFINITY);
            const double target = topP * total;
            const float probable = minP > 0.0f ? most + std::log(minP) : -INFINITY;
            for (const float below : NEARBY) {
                if (!find_between(found, logits, n, most - below, most, MANY)) break;
                double near = 0;
                for (const int32_t token : found) near += weights[token];
                if (near < target && most - below >= probable) continue;
                between(few, weights.data(), logits, n, most - below, most);
                return draw_among(few, most, scale, share, total);
            }
            const Reached end = reach(few, weights.data(), logits, n, most, most - NO_WEIGHT, {n, total}, target);
            float least = few[end.at].logit;
            Above kept{end.count, end.sum};
            if (probable > least) {
                least = probable;
                kept = above(weights.data(), logits, n, std::nextafter(least, -INFINITY));
                few.clear();
            }
            if (scale != 1.0f) kept.sum = weigh_into(weights.data(), logits, n, most, scale, least);
            // Equal logits after the last one are not kept.
            for (size_t i = end.at + 1; i < few.size() && few[i].logit == least; i++) {
                kept.count++;
                if (scale != 1.0f) kept.sum -= weights[few[i].token];
                weights[few[i].token] = 0.0f;
            }
            return few[reach(few, weights.data(), logits, n, most, least, kept, kept.sum * share).at].token;
        }

        struct Reached {
            // Position in `few`.
            size_t at;
            // Tokens up to this one, highest first, and the sum of their weights.
            int count;
            double sum;
        };

        // Of all tokens that are at least `least`, the one at which the running sum of the weights, highest first, reaches
        // `target`; `few` then has the tokens around it. Only these are sorted: the range of logits that has it is narrowed until
        // there are few enough, and each step takes a pass. `all`: of those that are at least `least`, or more.
        static Reached reach(
            std::vector<Candidate> & few, const float * weights, const float * logits, int n,
            float most, float least, Above all, double target
        ) {
            // The sum of those above `low` reaches it, or they are all; the sum of those above `high` does not.
            float low = std::nextafter(least, -INFINITY);
            float high = most;
            Above enough = all;
            Above less{0, 0};
            const Guess guess = guessed(weights, logits, n, low, target / all.sum);
            for (int pass = 0; enough.count - less.count > FEW; pass++) {
                float at = low + (high - low) / 2;
                if (pass == 0) at = guess.low;
                else if (pass == 1) at = guess.high;
                else if (pass % 4 != 1) {
                    // On a straight line between both ends, a few tokens beyond the target as seen from the nearer one, so that the
                    // next range has the target and little else. Each fourth pass takes the middle, where logits are on no line.
                    const double range = enough.sum - less.sum;
                    const double beyond = FEW / 3 * range / (enough.count - less.count);
                    const double goal = target - less.sum < range / 2 ? target + beyond : target - beyond;
                    at = low + (high - low) * static_cast<float>((enough.sum - goal) / range);
                }
                if (!(at > low && at < high)) at = low + (high - low) / 2;
                // There is no value in between: all are equal.
                if (!(at > low && at < high)) break;
                const Above here = above(weights, logits, n, at);
                (here.sum >= target ? enough : less) = here;
                (here.sum >= target ? low : high) = at;
            }
            between(few, weights, logits, n, low, high);
            const size_t at = reached(few, less.sum, target);
            double sum = less.sum;
            for (size_t i = 0; i <= at; i++) sum += few[i].weight;
            return {at, less.count + static_cast<int>(at) + 1, sum};
        }

        struct Guess {
            float low;
            float high;
        };

        // The logits between which the running sum probably reaches this share of all: those of a sample, every so manieth token, two
        // standard deviations of its error to both sides.
        static Guess guessed(const float * weights, const float * logits, int n, float low, double share) {
            static thread_local std::vector<Candidate> sample;
            sample.clear();
            double all = 0;
            const int stride = n / SAMPLE + 1;
            for (int i = stride / 2; i < n; i += stride) {
                if (!(logits[i] > low) || weights[i] == 0.0f) continue;
                sample.push_back({logits[i], weights[i], i});
                all += weights[i];
            }
            if (sample.size() < 3) return {low, low};
            std::sort(sample.begin(), sample.end(), [](const Candidate & a, const Candidate & b) { return a.logit > b.logit; });
            const size_t at = reached(sample, 0, all * share);
            const size_t around = static_cast<size_t>(std::sqrt(static_cast<double>(sample.size()))) + 1;
            const size_t last = sample.size() - 1;
            return {sample[std::min(at + around, last)].logit, sample[at > around ? at - around : 0].logit};
        }

        // Those above `low` and at most `high`, highest first, including the highest of all if there is no other.
        static void between(
            std::vector<Candidate> & few, const float * weights, const float * logits, int n, float low, float high
        ) {
            static thread_local std::vector<int32_t> found;
            find_between(found, logits, n, low, high, n);
            few.clear();
            for (const int32_t i : found) if (weights[i] > 0.0f) few.push_back({logits[i], weights[i], i});
            if (few.empty()) {
                const int32_t first = argmax(logits, n);
                few.push_back({logits[first], weights[first], first});
            }
            std::sort(few.begin(), few.end(), [](const Candidate & a, const Candidate & b) {
                return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
            });
        }

        // Where `sum` plus the weights reaches `target`, or the last.
        static size_t reached(const std::vector<Candidate> & few, double sum, double target) {
            size_t at = 0;
            while (at + 1 < few.size() && (sum += few[at].weight) < target) at++;
            return at;
        }
};

} // namespace
