import type { PatienceReport, QueueReport } from '../admission/seat-queue.js';
import type { Exchange } from '../http/exchange.js';
import type { AdmissionPage } from './admission-page.js';
import type { Services } from './services.js';

/** The most accounts that are listed for each model; the others are summed up. */
const NAMED = 100;

/** GET /admission on the operators' listener: each model's queue, and what each account has waiting, running and charged. */
export function admission(exchange: Exchange, services: Pick<Services, 'models'>): void {
  const models = Array.from(services.models.values(), ({ id, queue }) => ({
    model: id,
    ...admissionPage(queue.report(NAMED)),
  }));
  exchange.reply({ status: 200, body: JSON.stringify({ models }) });
}

/** The report with the fields of the page only, so that a field that is added to the queue's report is not shown by accident. */
export function admissionPage(report: QueueReport): AdmissionPage {
  return {
    seats: report.seats,
    busy: report.busy,
    waiting: report.waiting,
    waitingBytes: report.waitingBytes,
    paused: report.paused,
    replicas: report.replicas.map(({ seats, busy, up, tokenTimeRatio }) => ({
      seats,
      busy,
      up,
      tokenTimeRatio: tokenTimeRatio === null ? null : thousandths(tokenTimeRatio),
    })),
    fairness: report.fairness,
    refused: report.refused,
    released: report.released,
    overload: {
      standing: report.overload.standing,
      load: thousandths(report.overload.load),
      leftMs: whole(report.overload.leftMs),
      patience: {
        'first-token': patience(report.overload.patience['first-token']),
        end: patience(report.overload.patience.end),
      },
      retries: report.overload.retries,
    },
    nextVirtualMs: report.nextVirtualMs === null ? null : whole(report.nextVirtualMs),
    accounts: report.accounts.map((account) => ({
      account: account.account,
      weight: account.weight,
      waiting: account.waiting,
      running: account.running,
      virtualMs: whole(account.virtualMs),
      seatMs: whole(account.seatMs),
      holdMs: account.holdMs === null ? null : whole(account.holdMs),
      calibration: thousandths(account.calibration),
      predictedWaitMs: whole(account.predictedWaitMs),
      classes: account.classes.map((each) => ({
        class: each.class,
        waiting: each.waiting,
        running: each.running,
        holdMs: each.holdMs === null ? null : whole(each.holdMs),
        calibration: thousandths(each.calibration),
        predictedWaitMs: whole(each.predictedWaitMs),
      })),
    })),
    others: {
      accounts: report.others.accounts,
      waiting: report.others.waiting,
      running: report.others.running,
      seatMs: whole(report.others.seatMs),
    },
  };
}

function patience({ p10, p50, p90 }: PatienceReport): PatienceReport {
  const rounded = (ms: number | null): number | null => (ms === null ? null : whole(ms));
  return { p10: rounded(p10), p50: rounded(p50), p90: rounded(p90) };
}

function whole(ms: number): number {
  return Math.round(ms);
}

function thousandths(value: number): number {
  return Math.round(value * 1000) / 1000;
}
