import type { QueueState } from './queue-state.js';
import type { ClassReport, QueueReport, QueueSnapshot, AccountReport } from './seat-queue.js';
import type { AdmissionPolicy } from './admission-policy.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';

/** The state that decisions use. */
export function snapshotOf(
  { seats, busy, waiting, waitingBy, bytes, paused, accounts, released }: QueueState,
  refused: QueueSnapshot['refused'],
): QueueSnapshot {
  const active = Array.from(accounts.active, (account) => {
    return { account: account.name, waiting: account.waiting, running: account.running };
  });
  return {
    seats,
    busy,
    waiting,
    waitingBy: { ...waitingBy },
    waitingBytes: bytes,
    paused,
    accounts: active,
    refused,
    released: { ...released },
  };
}

/** The queue in full, with the `most` accounts that held seats longest by name. */
export function reportOf(state: QueueState, policy: AdmissionPolicy, most: number): QueueReport {
  const { accounts, replicas } = state;
  const all = [...accounts.all()].sort((a, b) => b.seatMs - a.seatMs || b.waiting - a.waiting);
  const others = { accounts: 0, waiting: 0, running: 0, seatMs: 0 };
  for (const { waiting, running, seatMs } of all.slice(most)) {
    others.accounts += 1;
    others.waiting += waiting;
    others.running += running;
    others.seatMs += seatMs;
  }
  return {
    ...snapshotOf(state, policy.refused),
    replicas: replicas.all.map(({ seats, busy, up, tokenTimeRatio = null }) => ({ seats, busy, up, tokenTimeRatio })),
    fairness: accounts.fairness ?? null,
    overload: policy.overloadReport(),
    nextVirtualMs: accounts.seatable.first?.virtualMs ?? null,
    accounts: all
      .slice(0, most)
      .map((account) => accountReport(account, (accountClass) => policy.predict(account, accountClass))),
    others,
  };
}

function accountReport(account: Account, waitMs: (accountClass: AccountClass) => number): AccountReport {
  const { name, weight, waiting, running, virtualMs, seatMs, holdMs } = account;
  const classes = account.classes.map((accountClass) => classReport(accountClass, waitMs(accountClass)));
  const { calibration, predictedWaitMs } = classReport(account.classFor(weight), waitMs(account.classFor(weight)));
  return {
    account: name,
    weight,
    waiting,
    running,
    virtualMs,
    seatMs,
    holdMs: holdMs ?? null,
    calibration,
    predictedWaitMs,
    classes,
  };
}

function classReport(accountClass: AccountClass, predictedWaitMs: number): ClassReport {
  const { waiting, running, hold, calibration } = accountClass;
  return { class: accountClass.class, waiting, running, holdMs: hold.meanMs ?? null, calibration, predictedWaitMs };
}
