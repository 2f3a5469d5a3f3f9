#include "speculation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

// Places at which one n-gram's hash may lie, by the text's capacity.
constexpr size_t LEAST_SLOTS = 1 << 8;
constexpr size_t MOST_SLOTS = 1 << 16;

size_t slots_for(size_t capacity) {
    size_t slots = LEAST_SLOTS;
    while (slots < capacity && slots < MOST_SLOTS) slots *= 2;
    return slots;
}

} // namespace

void Hits::count(bool came_true, double window) {
    came += came_true;
    of += 1;
    if (of < window) return;
    came /= 2;
    of /= 2;
}

void SharedHits::count(size_t at, bool came_true) {
    const std::lock_guard<std::mutex> lock(mutex);
    hits[at].count(came_true, WINDOW);
}

HitsByCommon SharedHits::read() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return hits;
}

Lookup::Lookup(const uint32_t * tokens, size_t count, size_t most, std::shared_ptr<SharedHits> all)
    : capacity(std::max(count, most)), all(std::move(all)) {
    text.reserve(capacity);
    text.assign(tokens, tokens + count);
}

size_t Lookup::class_of(size_t common) {
    if (common == 0) return 0;
    if (common <= 1) return 1;
    if (common <= 2) return 2;
    if (common <= 4) return 3;
    if (common <= 8) return 4;
    return common <= 16 ? 5 : 6;
}

// As most texts have it, with what the model's texts have shown.
HitsByCommon Lookup::usual(bool shared) const {
    HitsByCommon usual = USUAL;
    if (!shared || all == nullptr) return usual;
    const HitsByCommon shown = all->read();
    for (size_t at = 0; at < usual.size(); at++) {
        const double of = usual[at].of + shown[at].of;
        const double weight = std::min(of, SHARED * usual[at].of);
        usual[at] = {weight * (usual[at].came + shown[at].came) / of, weight};
    }
    return usual;
}

double Lookup::chance(size_t after, const HitsByCommon & usual) const {
    const size_t at = class_of(after);
    const Hits & own = hits[at];
    const Hits shorter = at > 0 ? hits[at - 1] : Hits{};
    const double before = (usual[at].came + SHORTER * shorter.came) / (usual[at].of + SHORTER * shorter.of);
    return (own.came + usual[at].of * before) / (own.of + usual[at].of);
}

void Lookup::feed(size_t position, llama_token token) {
    if (ended) return;
    if (position > text.size() || (position == text.size() && text.size() == capacity)) {
        clear();
        return;
    }
    if (position < text.size()) {
        if (text[position] == token) return;
        cut(position);
    }
    index();
    judge(token);
    text.push_back(token);
    if (next == NONE || common < SURE) search();
    index();
}

// Compares the prediction with the token that came.
void Lookup::judge(llama_token token) {
    if (next == NONE) return;
    const bool came = text[next] == token;
    hits[class_of(common)].count(came, WINDOW);
    if (all != nullptr) all->count(class_of(common), came);
    // Another token may stand in place of the predicted one: the next one is then that after it.
    next++;
    common = came ? common + 1 : 0;
    misses = came ? 0 : misses + 1;
    if (misses > MOST_MISSES) next = NONE;
}

// Takes the earlier place with the longest common text, if that is longer than the present one's. Before the last n-grams are indexed.
void Lookup::search() {
    const auto last = static_cast<int32_t>(text.size()) - 1;
    size_t longest = next == NONE ? 0 : common;
    int32_t found = NONE;
    for (size_t gram = 0; gram < GRAMS.size() && found == NONE; gram++) {
        if (text.size() < GRAMS[gram]) continue;
        int32_t place = latest[gram].empty() ? NONE : latest[gram][slot(gram, last)];
        for (int looked = 0; place != NONE && looked < MOST_PLACES; looked++, place = before[gram][place]) {
            const size_t same = common_at(place);
            if (same < GRAMS[gram] || same <= longest) continue;
            longest = same;
            found = place;
        }
    }
    if (found == NONE) return;
    next = found + 1;
    common = longest;
    misses = 0;
}

// Tokens that the text before and at `place` has in common with its end.
size_t Lookup::common_at(size_t place) const {
    size_t same = 0;
    while (same < MOST_COMMON && same <= place && text[place - same] == text[text.size() - 1 - same]) same++;
    return same;
}

uint32_t Lookup::slot(size_t gram, size_t last) const {
    uint32_t hash = 0;
    for (size_t i = 0; i < GRAMS[gram]; i++) hash = (hash ^ static_cast<uint32_t>(text[last - i])) * 2654435761u;
    return (hash >> 8) & static_cast<uint32_t>(latest[gram].size() - 1);
}

// Indexes the n-grams that end at tokens of the text, up to its last one.
void Lookup::index() {
    for (size_t gram = 0; gram < GRAMS.size(); gram++) {
        if (latest[gram].empty()) latest[gram].assign(slots_for(capacity), NONE);
        before[gram].resize(text.size(), NONE);
        for (size_t last = std::max(indexed, GRAMS[gram] - 1); last < text.size(); last++) {
            int32_t & head = latest[gram][slot(gram, last)];
            before[gram][last] = head;
            head = static_cast<int32_t>(last);
        }
    }
    indexed = text.size();
}

void Lookup::cut(size_t length) {
    for (size_t gram = 0; gram < GRAMS.size(); gram++) {
        // Latest first, so that each finds itself as the latest.
        for (size_t last = indexed; last-- > std::max(length, GRAMS[gram] - 1);) latest[gram][slot(gram, last)] = before[gram][last];
        before[gram].resize(std::min(before[gram].size(), length));
    }
    std::fill(text.begin() + length, text.end(), 0);
    text.resize(length);
    indexed = std::min(indexed, length);
    next = NONE;
    common = 0;
    misses = 0;
}

ByDraftLength Lookup::expected(bool shared) const {
    ByDraftLength tokens;
    tokens.fill(1);
    if (next == NONE) return tokens;
    const HitsByCommon before = usual(shared);
    double sum = 1;
    double reached = 1;
    size_t after = common;
    int32_t drafted = 0;
    for (size_t choice = 1; choice < DRAFT_CHOICES; choice++) {
        for (; drafted < DRAFT_LENGTHS[choice]; drafted++) {
            reached *= chance(after++, before);
            sum += reached;
        }
        tokens[choice] = sum;
    }
    return tokens;
}

int32_t Lookup::draft(int32_t count, llama_token * into) const {
    if (next == NONE) return 0;
    const auto length = static_cast<int32_t>(text.size());
    // The place may reach the end of the text: what repeats is then drafted again.
    for (int32_t i = 0; i < count; i++) into[i] = next + i < length ? text[next + i] : into[next + i - length];
    return count;
}

void Lookup::clear() {
    explicit_bzero(text.data(), text.size() * sizeof(llama_token));
    text = {};
    latest = {};
    before = {};
    next = NONE;
    ended = true;
}

ByDraftLength Foretold::expected(bool) const {
    ByDraftLength tokens;
    double sum = 0;
    double all = 1;
    int32_t drafted = -1;
    for (size_t choice = 0; choice < DRAFT_CHOICES; choice++) {
        for (; drafted < DRAFT_LENGTHS[choice] && fed + drafted < text.size(); drafted++) {
            sum += all;
            all *= chance;
        }
        tokens[choice] = std::max(1.0, sum);
    }
    return tokens;
}

int32_t Foretold::draft(int32_t count, llama_token * into) const {
    const auto known = static_cast<int32_t>(text.size() - std::min(fed, text.size()));
    std::copy_n(text.begin() + std::min(fed, text.size()), std::min(count, known), into);
    return std::min(count, known);
}

size_t StepCosts::bucket_of(size_t sequences) {
    if (sequences <= EXACT) return sequences - 1;
    const double over = 4 * std::log2(static_cast<double>(sequences) / EXACT);
    return std::min<size_t>(EXACT + static_cast<size_t>(over), BUCKETS - 1);
}

// The cost of so many tokens in one sequence, by lines between those that are known. Past the last of them
// by the line through it and the one before the one before it: the last tokens cost little only where one sequence has them all.
double StepCosts::shape(double tokens) const {
    size_t to = 1;
    while (to + 1 < DRAFT_CHOICES && tokens > DRAFT_LENGTHS[to] + 1) to++;
    const double from = DRAFT_LENGTHS[to - 1] + 1;
    const double share = (tokens - from) / (DRAFT_LENGTHS[to] - DRAFT_LENGTHS[to - 1]);
    if (share > 1) {
        return alone[to] + (tokens - DRAFT_LENGTHS[to] - 1) * (alone[to] - alone[to - 2]) / (DRAFT_LENGTHS[to] - DRAFT_LENGTHS[to - 2]);
    }
    return alone[to - 1] + share * (alone[to] - alone[to - 1]);
}

double StepCosts::estimated(size_t sequences, size_t choice) const {
    const auto count = static_cast<double>(sequences);
    return shape(count * (DRAFT_LENGTHS[choice] + 1)) / shape(count);
}

size_t StepCosts::choose(size_t sequences, const ByDraftLength & expected, size_t most, double most_ms, bool may_vary) {
    if (only) return std::min(*only, most);
    const bool fixed = sequences == 1 && !may_vary;
    const Learned & known = learned[bucket_of(sequences)];
    double ms = fixed || known.ms[0] == 0 ? 1 : known.ms[0];
    // As estimated, where `ms` is as hoped.
    double likely_ms = ms;
    size_t best = 0;
    double rate = (sequences > 1 ? LEAST_GAIN_OF_SEVERAL : LEAST_GAIN) * expected[0] / ms;
    for (size_t choice = 1; choice <= most; choice++) {
        // A number that is not known is estimated from the one before it, which may be: so it is tried where its estimate over a step
        // without drafts would be too high for that.
        const double more = estimated(sequences, choice) / estimated(sequences, choice - 1);
        const bool is_known = !fixed && known.ms[choice] != 0;
        if (!is_known) {
            ms *= fixed ? more : std::pow(more, HOPE);
            likely_ms *= more;
        } else {
            // Doubted for the limit too: a number that was slow once is tried again.
            likely_ms = ms = known.ms[choice] * std::pow(DOUBTED, known.since[choice] / DOUBT);
        }
        if (sequences > 1 && likely_ms > most_ms) break;
        if (expected[choice] / ms <= rate) continue;
        best = choice;
        rate = expected[choice] / ms;
        // A try may cost much: longer ones wait for what it shows.
        if (!fixed && !is_known) break;
    }
    if (fixed || best == 0) return best;
    return known.ms[0] == 0 || known.since[0] >= RENEW_PLAIN ? 0 : best;
}

void StepCosts::learn(size_t sequences, size_t choice, double ms) {
    Learned & known = learned[bucket_of(sequences)];
    double & average = known.ms[choice];
    // A single slow step says little of a number of drafts.
    const double most = choice > 0 && known.ms[0] != 0 ? MOST_CHANGE * known.ms[0] * estimated(sequences, choice) : INFINITY;
    if (average == 0 || known.since[choice] >= DOUBT) average = std::min(ms, most);
    else average += NEWEST * (std::clamp(ms, average / MOST_CHANGE, average * MOST_CHANGE) - average);
    for (uint32_t & each : known.since) each++;
    known.since[choice] = 0;
}

namespace {

std::unique_ptr<DraftSource> source_of(const Napi::CallbackInfo & info) {
    const auto tokens = info[0].As<Napi::Uint32Array>();
    const size_t count = tokens.ElementLength();
    const size_t most = info[1].As<Napi::Number>().Uint32Value();
    if (!info[3].IsNumber()) {
        const auto all = info[4].IsObject() ? RaStepCosts::Unwrap(info[4].As<Napi::Object>())->hits : nullptr;
        return std::make_unique<Lookup>(tokens.Data(), count, most, all);
    }
    return std::make_unique<Foretold>(
        std::vector<llama_token>(tokens.Data(), tokens.Data() + count), most, info[3].As<Napi::Number>().DoubleValue()
    );
}

} // namespace

RaDrafts::RaDrafts(const Napi::CallbackInfo & info)
    : Napi::ObjectWrap<RaDrafts>(info), may_vary(info[2].ToBoolean()), source(source_of(info)) {}

void RaDrafts::feed(size_t position, llama_token token) {
    const std::lock_guard<std::mutex> lock(mutex);
    source->feed(position, token);
}

ByDraftLength RaDrafts::expected(bool shared) {
    const std::lock_guard<std::mutex> lock(mutex);
    return source->expected(shared);
}

int32_t RaDrafts::draft(int32_t count, llama_token * into) {
    const std::lock_guard<std::mutex> lock(mutex);
    return source->draft(count, into);
}

void RaDrafts::stand(const void * of, int32_t at) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (of != numbering) places.clear();
    numbering = of;
    if (places.size() < MOST_PLACES) places.insert(at);
}

bool RaDrafts::stood(const void * of, int32_t at) {
    const std::lock_guard<std::mutex> lock(mutex);
    return of == numbering && places.count(at) > 0;
}

void RaDrafts::told(const Napi::CallbackInfo & info) {
    feed(info[0].As<Napi::Number>().Uint32Value(), info[1].As<Napi::Number>().Int32Value());
}

Napi::Value RaDrafts::expects(const Napi::CallbackInfo & info) {
    const ByDraftLength tokens = expected(info[0].ToBoolean());
    auto array = Napi::Float64Array::New(info.Env(), tokens.size());
    std::copy(tokens.begin(), tokens.end(), array.Data());
    return array;
}

Napi::Value RaDrafts::drafted(const Napi::CallbackInfo & info) {
    std::vector<llama_token> tokens(std::min<uint32_t>(info[0].As<Napi::Number>().Uint32Value(), DRAFT_LENGTHS.back()));
    const int32_t count = draft(static_cast<int32_t>(tokens.size()), tokens.data());
    auto array = Napi::Int32Array::New(info.Env(), count);
    std::copy(tokens.begin(), tokens.begin() + count, array.Data());
    return array;
}

void RaDrafts::wipe(const Napi::CallbackInfo &) {
    const std::lock_guard<std::mutex> lock(mutex);
    source->wipe();
}

namespace {

ByDraftLength numbers_of(const Napi::CallbackInfo & info, size_t argument) {
    const auto given = info[argument].As<Napi::Float64Array>();
    if (given.ElementLength() != DRAFT_CHOICES) throw Napi::RangeError::New(info.Env(), "numbers");
    ByDraftLength numbers;
    std::copy(given.Data(), given.Data() + DRAFT_CHOICES, numbers.begin());
    return numbers;
}

size_t sequences_of(const Napi::CallbackInfo & info) {
    return std::max<uint32_t>(1, info[0].As<Napi::Number>().Uint32Value());
}

std::optional<size_t> only_of(const Napi::CallbackInfo & info) {
    if (!info[1].IsNumber()) return {};
    return info[1].As<Napi::Number>().Uint32Value();
}

size_t choice_of(const Napi::CallbackInfo & info, size_t argument) {
    return std::min<size_t>(info[argument].As<Napi::Number>().Uint32Value(), DRAFT_CHOICES - 1);
}

} // namespace

RaStepCosts::RaStepCosts(const Napi::CallbackInfo & info) : Napi::ObjectWrap<RaStepCosts>(info), costs(numbers_of(info, 0), only_of(info)) {}

// Sequences, expected tokens, the last index that may be chosen, what a step with drafts may take, ms, absent: any time, and whether
// measured times may decide for one sequence.
Napi::Value RaStepCosts::choose(const Napi::CallbackInfo & info) {
    const double most_ms = info[3].IsNumber() ? info[3].As<Napi::Number>().DoubleValue() : INFINITY;
    const size_t choice = costs.choose(sequences_of(info), numbers_of(info, 1), choice_of(info, 2), most_ms, info[4].ToBoolean());
    return Napi::Number::New(info.Env(), static_cast<double>(choice));
}

// Sequences, the index that was chosen, ms.
void RaStepCosts::learn(const Napi::CallbackInfo & info) {
    costs.learn(sequences_of(info), choice_of(info, 1), info[2].As<Napi::Number>().DoubleValue());
}

void raSpeculationInit(Napi::Env env, Napi::Object exports) {
    exports.Set("RaDrafts", RaDrafts::DefineClass(env, "RaDrafts", {
        RaDrafts::InstanceMethod<&RaDrafts::told>("feed"),
        RaDrafts::InstanceMethod<&RaDrafts::expects>("expected"),
        RaDrafts::InstanceMethod<&RaDrafts::drafted>("draft"),
        RaDrafts::InstanceMethod<&RaDrafts::wipe>("wipe"),
    }));
    exports.Set("RaStepCosts", RaStepCosts::DefineClass(env, "RaStepCosts", {
        RaStepCosts::InstanceMethod<&RaStepCosts::choose>("choose"),
        RaStepCosts::InstanceMethod<&RaStepCosts::learn>("learn"),
    }));
}
