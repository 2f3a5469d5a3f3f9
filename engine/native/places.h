/*
 * The places of a grammar whose masks JavaScript has made (engine/grammar/mask.ts), by its numbers for them: which tokens may come there,
 * and the place after each. A run of steps follows its replies through them, and ends where one is not known. Included by next-token.cpp
 * alone.
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "napi.h"

namespace {

struct Place {
    // A bit for each token that may come.
    std::vector<uint32_t> may;
    // Few characters may follow: a token is picked among these at once.
    bool narrow;
    // Tokens after which the text stands elsewhere, ascending, with the place then; -1: one that is not known.
    std::vector<std::pair<int32_t, int32_t>> leaves;

    // The place after a token that may come, here being `at`.
    int32_t after(int32_t at, int32_t token) const {
        const auto found = std::lower_bound(leaves.begin(), leaves.end(), std::make_pair(token, INT32_MIN));
        return found != leaves.end() && found->first == token ? found->second : at;
    }
};

// Changed by JavaScript's thread, also while a run reads.
class RaPlaces : public Napi::ObjectWrap<RaPlaces> {
    public:
        using Napi::ObjectWrap<RaPlaces>::ObjectWrap;
        void Finalize(Napi::Env env) override { report(env, -bytes); }

        // nullptr: it is not known.
        std::shared_ptr<const Place> find(int32_t at) {
            const std::lock_guard<std::mutex> lock(mutex);
            const auto found = places.find(at);
            return found == places.end() ? nullptr : found->second;
        }

        // Place, tokens that may come, whether it is narrow, tokens after which the text stands elsewhere and the places then, in pairs.
        void know(const Napi::CallbackInfo & info) {
            const auto bits = info[1].As<Napi::Uint32Array>();
            const auto pairs = info[3].As<Napi::Int32Array>();
            auto made = std::make_shared<Place>();
            made->may.assign(bits.Data(), bits.Data() + bits.ElementLength());
            made->narrow = info[2].ToBoolean();
            for (size_t i = 0; i + 1 < pairs.ElementLength(); i += 2) made->leaves.emplace_back(pairs[i], pairs[i + 1]);
            std::sort(made->leaves.begin(), made->leaves.end());
            const std::lock_guard<std::mutex> lock(mutex);
            auto & place = places[info[0].As<Napi::Number>().Int32Value()];
            report(info.Env(), bytes_of(*made) - (place == nullptr ? 0 : bytes_of(*place)));
            place = std::move(made);
        }

    private:
        static int64_t bytes_of(const Place & place) {
            return static_cast<int64_t>(place.may.size() * sizeof(place.may[0]) + place.leaves.size() * sizeof(place.leaves[0]));
        }

        // To JavaScript's garbage collector, which does not see them.
        void report(Napi::Env env, int64_t change) {
            bytes += change;
            Napi::MemoryManagement::AdjustExternalMemory(env, change);
        }

        int64_t bytes = 0;
        std::mutex mutex;
        std::unordered_map<int32_t, std::shared_ptr<const Place>> places;
};

} // namespace
