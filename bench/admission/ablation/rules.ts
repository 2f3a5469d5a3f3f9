/**
 * The rules of the seat queue, each of which can be switched off. The service has no such switches: here the method that a rule is made
 * of is replaced on its class, for all queues of this process, until it is put back.
 */
import { Account, AccountClass } from '../../../sidecar/admission/accounts.js';
import { Demand, ServiceRate } from '../../../sidecar/admission/measures.js';
import { Judge } from '../../../sidecar/admission/judge.js';
import { Overload, Standing } from '../../../sidecar/admission/overload.js';
import { PatienceBook, Survival } from '../../../sidecar/admission/patience.js';
import { RetryReservations } from '../../../sidecar/admission/retry.js';
import { ReplicaSeats } from '../../../sidecar/admission/seats.js';

type Undo = () => void;

/** What a cell has that some rules are about. Where a cell does not have it, the rule changes nothing. */
export type Subject = 'overload' | 'accounts' | 'returns' | 'classes' | 'lengths' | 'replicas';

/** A rule by its name; `off` removes it and returns what puts it back. */
export interface Rule {
  readonly name: string;
  readonly about: Subject;
  readonly off: () => Undo;
}

/** Replaces a method of a class by what `make` returns, which is given the method as it was. */
function method<T extends object, K extends keyof T>(
  of: { readonly prototype: T },
  name: K,
  make: (was: T[K]) => T[K],
): Undo {
  const before = Object.getOwnPropertyDescriptor(of.prototype, name);
  if (before === undefined) throw new Error(`no method ${String(name)}`);
  Object.defineProperty(of.prototype, name, { ...before, value: make(before.value as T[K]) });
  return () => Object.defineProperty(of.prototype, name, before);
}

/** Replaces a property that is computed by a value. */
function computed<T extends object, K extends keyof T>(of: { readonly prototype: T }, name: K, value: T[K]): Undo {
  const before = Object.getOwnPropertyDescriptor(of.prototype, name);
  if (before === undefined) throw new Error(`no property ${String(name)}`);
  Object.defineProperty(of.prototype, name, { ...before, get: () => value });
  return () => Object.defineProperty(of.prototype, name, before);
}

function all(...undo: readonly Undo[]): Undo {
  return () => undo.forEach((each) => each());
}

/** The rule "seat time" (make-room.ts): where each account has one request waiting, a newcomer is refused whoever had more seat time. */
function withoutSeatTime(): Undo {
  return method(Judge, 'judge', (was) => {
    return function (this: Judge, request, account, again) {
      const verdict = was.call(this, request, account, again);
      if (verdict.kind === 'refused' || !verdict.dropped.some(({ list }) => list?.length === 1)) return verdict;
      return this.refuse('standing', account, account.classFor(request.weight));
    };
  });
}

/** The pool of all accounts' callers with the account of which the most left. */
function withAllInPool(): Undo {
  /** The pools' estimates, which alone are emptied by taking themselves away. */
  const pools = new WeakSet<Survival>();
  return method(Survival, 'add', (was) => {
    return function (this: Survival, now, halfMs, other, part) {
      if (other === this) pools.add(this);
      else if (part < 0 && pools.has(this)) return;
      was.call(this, now, halfMs, other, part);
    };
  });
}

/** No rule: the queue draws other random numbers. What that changes is chance. */
export const CHANCE: Rule = {
  name: 'chance',
  about: 'overload',
  off: () =>
    method(Overload, 'explores', (was) => {
      return function (this: Overload) {
        was.call(this);
        return was.call(this);
      };
    }),
};

export const RULES: readonly Rule[] = [
  {
    name: 'standing',
    about: 'overload',
    off: () =>
      all(
        computed(Standing, 'forAny', true),
        method(Standing, 'isFor', () => () => true),
      ),
  },
  {
    name: 'standing by length',
    about: 'lengths',
    off: () =>
      method(Overload, 'standsFor', (was) => {
        return function (this: Overload) {
          return was.call(this, 0);
        };
      }),
  },
  { name: 'room of a class', about: 'overload', off: () => method(Overload, 'roomOf', () => () => Infinity) },
  { name: 'room of all', about: 'overload', off: () => computed(Overload, 'totalRoom', Infinity) },
  { name: 'seat time', about: 'accounts', off: withoutSeatTime },
  { name: 'surplus', about: 'overload', off: () => method(Overload, 'surplus', () => () => []) },
  {
    name: 'newest first',
    about: 'overload',
    off: () =>
      method(Overload, 'arrived', (was) => {
        return function (this: Overload, request, account, accountClass) {
          was.call(this, request, account, accountClass);
          accountClass.newestFirst = false;
        };
      }),
  },
  { name: 'fresh', about: 'overload', off: () => method(Overload, 'isFresh', () => () => false) },
  { name: 'aged', about: 'overload', off: () => method(Overload, 'isAged', () => () => false) },
  { name: 'hopeless', about: 'overload', off: () => method(Overload, 'hopelessMs', () => () => Infinity) },
  { name: 'patience', about: 'overload', off: () => method(Overload, 'longestMs', () => () => Infinity) },
  { name: 'exploring', about: 'overload', off: () => method(Overload, 'explores', () => () => false) },
  {
    name: 'own patience',
    about: 'overload',
    off: () =>
      method(PatienceBook, 'of', (was) => {
        return function (this: PatienceBook, _, awaited, times) {
          return was.call(this, {}, awaited, times, false);
        };
      }),
  },
  {
    name: 'only request trusted',
    about: 'overload',
    off: () =>
      method(PatienceBook, 'of', (was) => {
        return function (this: PatienceBook, own, awaited, times) {
          return was.call(this, own, awaited, times, false);
        };
      }),
  },
  { name: 'one account left out', about: 'overload', off: withAllInPool },
  {
    name: 'reservations',
    about: 'returns',
    off: () =>
      all(
        method(RetryReservations, 'offer', () => () => undefined),
        method(RetryReservations, 'redeem', () => () => false),
      ),
  },
  {
    name: 'waiting not counted as load',
    about: 'overload',
    off: () =>
      method(Demand, 'load', (was) => {
        return function (this: Demand) {
          return was.call(this, 0);
        };
      }),
  },
  { name: 'calibration', about: 'overload', off: () => computed(AccountClass, 'calibration', 1) },
  { name: 'pace of seats', about: 'overload', off: () => method(ServiceRate, 'waitMs', () => () => 0) },
  {
    name: 'classes of an account',
    about: 'classes',
    off: () =>
      method(Account, 'classFor', (was) => {
        return function (this: Account) {
          return was.call(this, 4);
        };
      }),
  },
  { name: 'judged again', about: 'lengths', off: () => method(Judge, 'outgrew', () => () => false) },
  { name: 'long before short', about: 'lengths', off: () => method(ReplicaSeats, 'shorterThan', () => () => 0) },
  {
    name: 'replica speeds',
    about: 'replicas',
    off: () => method(ReplicaSeats, 'observeTokenMs', () => () => undefined),
  },
];
