import type { QueueReport } from '../admission/seat-queue.js';
import type { Exchange } from '../http/exchange.js';
import type { AdmissionPage } from './admission-page.js';
import type { Services } from './services.js';

/** Accounts that are named a model; the others are summed up. */
const NAMED = 100;

/** GET /admission on the operators' listener: each model's queue, and what each account has waiting, running and charged. */
export function admission(exchange: Exchange, services: Pick<Services, 'models'>): void {
  const models = Array.from(services.models.values(), ({ id, queue }) => ({
    model: id,
    ...admissionPage(queue.report(NAMED)),
  }));
  exchange.reply({ status: 200, body: JSON.stringify({ models }) });
}

/** The report as a closed shape: what is added to the queue's own is not shown by itself. */
export function admissionPage(report: QueueReport): AdmissionPage {
  return {
    seats: report.seats,
    busy: report.busy,
    waiting: report.waiting,
    waitingBytes: report.waitingBytes,
    paused: report.paused,
    fairness: report.fairness,
    refused: report.refused,
    released: report.released,
    accounts: report.tenants.map((tenant) => ({
      account: tenant.tenant,
      weight: tenant.weight,
      waiting: tenant.waiting,
      running: tenant.running,
      virtualMs: whole(tenant.virtualMs),
      seatMs: whole(tenant.seatMs),
      holdMs: tenant.holdMs === null ? null : whole(tenant.holdMs),
      calibration: thousandths(tenant.calibration),
      predictedWaitMs: whole(tenant.predictedWaitMs),
      classes: tenant.classes.map((of) => ({
        class: of.class,
        waiting: of.waiting,
        running: of.running,
        holdMs: of.holdMs === null ? null : whole(of.holdMs),
        calibration: thousandths(of.calibration),
        predictedWaitMs: whole(of.predictedWaitMs),
      })),
    })),
    others: {
      accounts: report.others.tenants,
      waiting: report.others.waiting,
      running: report.others.running,
      seatMs: whole(report.others.seatMs),
    },
  };
}

function whole(ms: number): number {
  return Math.round(ms);
}

function thousandths(value: number): number {
  return Math.round(value * 1000) / 1000;
}
