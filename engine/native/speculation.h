/*
 * Speculation by prompt lookup. A reply often repeats its prompt or itself: an edited file, a quotation, JSON made of a document's
 * words. The tokens that followed an earlier occurrence of the reply's last tokens are drafted as its next ones, and one decode
 * computes the logits after each of them. Tokens are picked from these logits row by row until a pick differs from the draft: each
 * pick has the logits and the random number that it has without drafts, so the reply is the same but for the last digits of logits,
 * which move with the number of tokens in a decode. Where a pick differs the remaining drafts are removed from the sequence.
 *
 * llama.cpp decodes sequences together only where each has as many tokens, so all sequences of a step draft the same number. It is the
 * one of DRAFT_LENGTHS for which the tokens that the step is expected to give (Lookup) over its time (StepCosts) are the most.
 *
 * A reply with a seed, or at temperature 0, that is alone in its steps is to be the same each time, and the number of drafts moves last
 * digits. So for it that number depends on counts alone: what was accepted of this reply's drafts, and fixed costs. Measured times decide
 * for any other reply, and where several sequences share a step, whose digits depend on the neighbours in any case.
 *
 * A reply that masks of a grammar's thread hold has drafts as far as the masks after them are known, one that is to repeat only where it
 * stood before: at other places the masks may be known from other replies. Each pick has the mask that it has without drafts.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "llama.h"
#include "napi.h"

// Tokens that each sequence of a step drafts. Ascending; the first is no speculation. With 63, a sequence has 64 tokens in a decode: from
// there on llama.cpp's flash attention on a CPU reads the state once for all of them, and 64 take hardly longer than 32.
constexpr std::array<int32_t, 6> DRAFT_LENGTHS = {0, 3, 7, 15, 31, 63};
constexpr size_t DRAFT_CHOICES = DRAFT_LENGTHS.size();

// A number for each of DRAFT_LENGTHS.
using ByDraftLength = std::array<double, DRAFT_CHOICES>;

// Where the drafts of one reply come from. It is told each token of the sequence from the reply's first step on.
class DraftSource {
    public:
        virtual ~DraftSource() = default;

        // The token at `position` of the sequence. One that it knows changes nothing; another one replaces what came from there on.
        virtual void feed(size_t position, llama_token token) = 0;

        // Tokens that a step gives on average with so many drafts: 1 with none, or where it predicts nothing. `shared`: what other replies
        // of the model have shown counts too.
        virtual ByDraftLength expected(bool shared) const = 0;

        // Writes up to `count` drafted tokens; returns how many.
        virtual int32_t draft(int32_t count, llama_token * into) const = 0;

        // Overwrites what it knows of the text with zeros, and frees the memory. From then on it predicts nothing.
        virtual void wipe() = 0;
};

// Predictions, and those of them that came true.
struct Hits {
    double came = 0;
    double of = 0;

    // At `window` predictions both are halved: texts change.
    void count(bool came_true, double window);
};

// By the length of the common text before a prediction, in classes.
using HitsByCommon = std::array<Hits, 7>;

// Of all replies of a model. For threads of decodes and of JavaScript.
class SharedHits {
    public:
        void count(size_t at, bool came_true);
        HitsByCommon read() const;

    private:
        static constexpr double WINDOW = 256;

        mutable std::mutex mutex;
        HitsByCommon hits{};
};

/*
 * The text of one reply, its prompt included, and where its last tokens occurred before.
 *
 * It follows one earlier place of the text: the token there is the prediction of the next one. As long as predictions come true it
 * stays at that place; where one does not, it takes the place with the longest common text before it. How often predictions come true
 * is counted for this reply and for all of its model, by the length of the common text, also while nothing is drafted: so the counts
 * cost no decodes.
 */
class Lookup : public DraftSource {
    public:
        // `capacity`: tokens that the text has at most; its memory never moves, so that `wipe` overwrites all that there was. `all`: where
        // its model's predictions are counted; null: nowhere.
        Lookup(const uint32_t * tokens, size_t count, size_t capacity, std::shared_ptr<SharedHits> all);
        ~Lookup() override { clear(); }
        Lookup(const Lookup &) = delete;
        Lookup & operator=(const Lookup &) = delete;

        // A position after a gap, or past the capacity, ends the lookup.
        void feed(size_t position, llama_token token) override;
        ByDraftLength expected(bool shared) const override;
        int32_t draft(int32_t count, llama_token * into) const override;
        void wipe() override { clear(); }

    private:
        // Lengths of the n-grams by which earlier places are found, longest first.
        static constexpr std::array<size_t, 2> GRAMS = {4, 2};
        // Places with the same n-gram that are looked at, latest first, and tokens of common text that are compared.
        static constexpr int MOST_PLACES = 32;
        static constexpr size_t MOST_COMMON = 32;
        // A place is kept without a search once it has so much common text.
        static constexpr size_t SURE = 8;
        // Predictions in a row that may fail before a place without common text is left.
        static constexpr int MOST_MISSES = 2;
        static constexpr double WINDOW = 64;
        // A class is expected to be as most texts have it, and by this weight as the next shorter one is in this text.
        static constexpr double SHORTER = 0.25;
        static constexpr int32_t NONE = -1;

        // Before any text has shown how often its predictions come true: as in edits of source text for long common texts, and too rarely
        // to be drafted for short ones. A text counts as much as its model's others once it has so many predictions, times SHARED at most.
        static constexpr double SHARED = 2;
        static constexpr HitsByCommon USUAL = {{{0.4, 2}, {0.8, 2}, {1.0, 2}, {1.6, 2}, {3.5, 4}, {3.7, 4}, {3.9, 4}}};

        static size_t class_of(size_t common);
        double chance(size_t common, const HitsByCommon & usual) const;
        HitsByCommon usual(bool shared) const;
        void judge(llama_token token);
        void search();
        size_t common_at(size_t place) const;
        uint32_t slot(size_t gram, size_t last) const;
        void index();
        void cut(size_t length);
        void clear();

        std::vector<llama_token> text;
        const size_t capacity;
        // Of each length in GRAMS: by hash the latest place where such an n-gram ends, and for each place the one before it.
        std::array<std::vector<int32_t>, GRAMS.size()> latest;
        std::array<std::vector<int32_t>, GRAMS.size()> before;
        // Tokens whose n-grams are in there.
        size_t indexed = 0;
        // The index of the predicted token; NONE: nothing is predicted.
        int32_t next = NONE;
        size_t common = 0;
        int misses = 0;
        // Of this text.
        HitsByCommon hits{};
        const std::shared_ptr<SharedHits> all;
        bool ended = false;
};

// A text that is known beforehand, of whose tokens this share is claimed to come: for tests and benches.
class Foretold : public DraftSource {
    public:
        Foretold(std::vector<llama_token> text, size_t fed, double chance) : text(std::move(text)), fed(fed), chance(chance) {}
        void feed(size_t position, llama_token) override { fed = position + 1; }
        ByDraftLength expected(bool shared) const override;
        int32_t draft(int32_t count, llama_token * into) const override;
        void wipe() override { text.clear(); }

    private:
        std::vector<llama_token> text;
        // Tokens of the sequence so far.
        size_t fed;
        const double chance;
};

/*
 * What a step takes by the number of sequences and of drafts: learned, and fixed for a reply that is to repeat. Only ratios
 * between numbers of drafts matter. What a number took counts for less the longer that number was not used, so that it is tried again,
 * the later the more it had cost; and the steps without drafts are measured again from time to time, since longer texts and other work
 * change all times.
 */
class StepCosts {
    public:
        // `alone`: of one sequence, over a step without drafts. From them unknown costs are estimated.
        // `only`: the index of the one number that is drafted, or as near to it as may be; absent: any.
        explicit StepCosts(const ByDraftLength & alone, std::optional<size_t> only = {}) : alone(alone), only(only) {}

        // The index of the best number of drafts. `expected`: tokens that a step gives, of all `sequences` together; `most`: the last
        // index that may be chosen; `most_ms`: what a step with drafts may take, except for one sequence, since no other one waits for it;
        // `may_vary`: measured times may decide for one sequence too.
        size_t choose(size_t sequences, const ByDraftLength & expected, size_t most, double most_ms, bool may_vary);

        // A step took so long, ms.
        void learn(size_t sequences, size_t choice, double ms);

    private:
        // Sequences up to here are told apart; more are by quarters of a power of two.
        static constexpr size_t EXACT = 16;
        static constexpr size_t BUCKETS = 40;
        // The weight of the newest step in an average; one step counts for at most so many times the average.
        static constexpr double NEWEST = 1.0 / 8;
        static constexpr double MOST_CHANGE = 2;
        // Drafts must promise so much more than steps without them: expectations are rough. Several replies that draft also end in
        // different steps, the last of which take more for each token.
        static constexpr double LEAST_GAIN = 1.05;
        static constexpr double LEAST_GAIN_OF_SEVERAL = 1.1;
        // After so many steps of as many sequences the time without drafts is measured again.
        static constexpr uint32_t RENEW_PLAIN = 128;
        // For each DOUBT steps without a number of drafts its time counts as this part.
        static constexpr uint32_t DOUBT = 512;
        static constexpr double DOUBTED = 0.9;

        struct Learned {
            // 0: not known.
            ByDraftLength ms{};
            std::array<uint32_t, DRAFT_CHOICES> since{};
        };

        static size_t bucket_of(size_t sequences);
        // An unknown cost over the one before it is this power of the estimate: a number that costs less than estimated is found only if
        // it is tried, and one that costs more is known after a step.
        static constexpr double HOPE = 0.85;

        // Estimated from `alone`, over a step without drafts.
        double estimated(size_t sequences, size_t choice) const;
        double shape(double tokens) const;

        const ByDraftLength alone;
        const std::optional<size_t> only;
        std::array<Learned, BUCKETS> learned;
};

// One reply's drafts, as JavaScript holds them: tokens of its prompt, its most tokens, prompt and reply, and whether it may vary from one
// time to the next. Given a chance, the tokens are the whole text, and the most tokens where the reply begins: Foretold. Given costs, its
// predictions count for all replies of these.
class RaDrafts : public Napi::ObjectWrap<RaDrafts> {
    public:
        explicit RaDrafts(const Napi::CallbackInfo & info);
        const bool may_vary;

        // These are the source's, for the thread of all decodes, while JavaScript may wipe.
        void feed(size_t position, llama_token token);
        ByDraftLength expected(bool shared);
        int32_t draft(int32_t count, llama_token * into);

        // The reply stands at this place of a grammar; `of`: its numbering (places.h).
        void stand(const void * of, int32_t at);
        // Whether it stood there; of a numbering's places MOST_PLACES are kept.
        bool stood(const void * of, int32_t at);

        // The same for JavaScript.
        void told(const Napi::CallbackInfo & info);
        Napi::Value expects(const Napi::CallbackInfo & info);
        Napi::Value drafted(const Napi::CallbackInfo & info);
        void wipe(const Napi::CallbackInfo & info);

    private:
        static constexpr size_t MOST_PLACES = 1 << 14;

        std::mutex mutex;
        const std::unique_ptr<DraftSource> source;
        const void * numbering = nullptr;
        std::unordered_set<int32_t> places;
};

// The costs of one context's steps, used by the thread of all decodes alone, and the hits of its replies' predictions.
class RaStepCosts : public Napi::ObjectWrap<RaStepCosts> {
    public:
        // StepCosts' `alone`, as a Float64Array, and `only` or undefined.
        explicit RaStepCosts(const Napi::CallbackInfo & info);
        StepCosts costs;
        const std::shared_ptr<SharedHits> hits = std::make_shared<SharedHits>();

        // StepCosts' for JavaScript. Not during a run.
        Napi::Value choose(const Napi::CallbackInfo & info);
        void learn(const Napi::CallbackInfo & info);
};
