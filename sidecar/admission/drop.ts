import type { Heap } from '../lib/heap.js';
import type { Place } from './queued-request.js';
import type { TenantClass } from './account-class.js';
import type { Tenant } from './account.js';

/** What the room lacks for a newcomer. */
export interface Lack {
  readonly places: number;
  readonly bytes: number;
}

/** Who wants to get in. */
export interface Newcomer {
  readonly tenant: Tenant;
  readonly class: TenantClass;
  readonly bytes: number;
}

/** What a class of a tenant would still have waiting. */
interface Rest {
  places: number;
  bytes: number;
  newest: Place | undefined;
}

type Kind = keyof Lack;

/**
 * Who must go for a newcomer: the newest request of the tenant that has most waiting, again and again until the newcomer
 * fits (longest-queue drop, fair-queue.ts). Inside that tenant it is the newest of the class that has most waiting for
 * its weight: so a batch backlog makes room for interactive requests, and an interactive one leaves batch its share.
 * Undefined: the newcomer itself is refused, because its tenant, and inside it its class, has the most waiting or as
 * good as the most. Then no other is to be dropped either.
 */
export function victims(tenants: Heap<Tenant>, newcomer: Newcomer, lack: Lack): Place[] | undefined {
  const rests = new Map<TenantClass, Rest>();
  const dropped: Place[] = [];
  let lacking = lack;
  while (lacking.places > 0 || lacking.bytes > 0) {
    const kind = lacking.places > 0 ? 'places' : 'bytes';
    const longest = longestOf(tenants, newcomer, kind, rests);
    const from = classToDrop(longest, newcomer, kind, rests);
    if (from === undefined) return undefined;
    const { newest, ...left } = restOf(from, rests);
    if (newest === undefined) return undefined;
    dropped.push(newest);
    rests.set(from, { places: left.places - 1, bytes: left.bytes - newest.entry.bytes, newest: newest.prev });
    lacking = { places: lacking.places - 1, bytes: lacking.bytes - newest.entry.bytes };
  }
  return dropped;
}

/** The tenant with the most waiting: the newcomer's where no other has more than that would have with it. O(tenants). */
function longestOf(
  tenants: Heap<Tenant>,
  { tenant: own, bytes }: Newcomer,
  kind: Kind,
  rests: ReadonlyMap<TenantClass, Rest>,
): Tenant {
  let longest = own;
  let length = -1;
  tenants.each((tenant) => {
    const has = rests.size === 0 ? ownOf(tenant, kind) : sumOf(tenant, kind, rests);
    if (has > length) [longest, length] = [tenant, has];
  });
  const has = rests.size === 0 ? ownOf(own, kind) : sumOf(own, kind, rests);
  return length <= has + (kind === 'places' ? 1 : bytes) ? own : longest;
}

/** The class of `tenant` with the most waiting over its weight; undefined: the newcomer's own would have as much. */
function classToDrop(
  tenant: Tenant,
  newcomer: Newcomer,
  kind: Kind,
  rests: ReadonlyMap<TenantClass, Rest>,
): TenantClass | undefined {
  let most = 0;
  let found: TenantClass | undefined;
  for (const known of tenant.classes) {
    const { newest, ...left } = restOf(known, rests);
    const share = left[kind] / known.weight;
    if (newest !== undefined && share > most) [found, most] = [known, share];
  }
  if (tenant !== newcomer.tenant) return found;
  const { class: own } = newcomer;
  const after = (restOf(own, rests)[kind] + (kind === 'places' ? 1 : newcomer.bytes)) / own.weight;
  return found === own || most <= after ? undefined : found;
}

function restOf(of: TenantClass, rests: ReadonlyMap<TenantClass, Rest>): Rest {
  return rests.get(of) ?? { places: of.line.length, bytes: of.bytes, newest: of.line.last };
}

function sumOf({ classes }: Tenant, kind: Kind, rests: ReadonlyMap<TenantClass, Rest>): number {
  return classes.reduce((sum, known) => sum + restOf(known, rests)[kind], 0);
}

function ownOf(tenant: Tenant, kind: Kind): number {
  return kind === 'places' ? tenant.inRoom : tenant.bytes;
}
