import type { Books } from './queue-state.js';
import type { ClassReport, QueueReport, QueueSnapshot, TenantReport } from './seat-queue.js';
import type { TenantClass } from './account-class.js';
import type { Tenant } from './account.js';
import type { Tenants } from './accounts.js';

/** What decisions are made by. */
export function snapshotOf(
  { seats, busy, waiting, waitingBy, bytes, paused, tenants, released }: Books,
  refused: QueueSnapshot['refused'],
): QueueSnapshot {
  const active = Array.from(tenants.active, (tenant) => {
    return { tenant: tenant.name, waiting: tenant.waiting, running: tenant.running };
  });
  return {
    seats,
    busy,
    waiting,
    waitingBy: { ...waitingBy },
    waitingBytes: bytes,
    paused,
    tenants: active,
    refused,
    released: { ...released },
  };
}

/** The queue in full, with the `most` tenants that held seats longest by name. */
export function reportOf(
  snapshot: QueueSnapshot,
  tenants: Tenants,
  most: number,
  waitMs: (tenant: Tenant, of: TenantClass) => number,
): QueueReport {
  const all = [...tenants.all()].sort((a, b) => b.seatMs - a.seatMs || b.waiting - a.waiting);
  const others = { tenants: 0, waiting: 0, running: 0, seatMs: 0 };
  for (const { waiting, running, seatMs } of all.slice(most)) {
    others.tenants += 1;
    others.waiting += waiting;
    others.running += running;
    others.seatMs += seatMs;
  }
  return {
    ...snapshot,
    fairness: tenants.fairness ?? null,
    tenants: all.slice(0, most).map((tenant) => tenantReport(tenant, (of) => waitMs(tenant, of))),
    others,
  };
}

function tenantReport(tenant: Tenant, waitMs: (of: TenantClass) => number): TenantReport {
  const { name, weight, waiting, running, virtualMs, seatMs, hold } = tenant;
  const classes = tenant.classes.map((of) => classReport(of, waitMs(of)));
  const { calibration, predictedWaitMs } = classReport(tenant.classFor(weight), waitMs(tenant.classFor(weight)));
  return {
    tenant: name,
    weight,
    waiting,
    running,
    virtualMs,
    seatMs,
    holdMs: hold.meanMs ?? null,
    calibration,
    predictedWaitMs,
    classes,
  };
}

function classReport(of: TenantClass, predictedWaitMs: number): ClassReport {
  const { waiting, running, hold, calibration } = of;
  return { class: of.class, waiting, running, holdMs: hold.meanMs ?? null, calibration, predictedWaitMs };
}
