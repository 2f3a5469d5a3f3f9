import type { Heap } from '../heap.js';
import type { Place } from './place.js';
import type { Tenant } from './tenant.js';

/** What the room lacks for a newcomer. */
export interface Lack {
  readonly places: number;
  readonly bytes: number;
}

/** What a tenant would still have waiting. */
interface Rest {
  places: number;
  bytes: number;
  newest: Place | undefined;
}

/**
 * Who must go for a newcomer of `bytes` bytes: the newest request of whoever has most waiting, again and again until it
 * fits (longest-queue drop, fair-queue.ts). Undefined: nobody, the newcomer itself is refused, because its tenant has
 * the most waiting or as good as the most. Then nobody is to be dropped either.
 */
export function victims(tenants: Heap<Tenant>, arriver: Tenant, bytes: number, lack: Lack): Place[] | undefined {
  const rests = new Map<Tenant, Rest>();
  const rest = (tenant: Tenant): Rest =>
    rests.get(tenant) ?? { places: tenant.line.length, bytes: tenant.bytes, newest: tenant.line.last };
  const dropped: Place[] = [];
  let lacking = lack;
  while (lacking.places > 0 || lacking.bytes > 0) {
    const kind = lacking.places > 0 ? 'places' : 'bytes';
    let longest: Tenant = arriver;
    let length = -1;
    tenants.each((tenant) => {
      const own = rests.size === 0 ? ownOf(tenant, kind) : rest(tenant)[kind];
      if (own > length) [longest, length] = [tenant, own];
    });
    const { newest, ...left } = rest(longest);
    const after = ownOf(arriver, kind) + (kind === 'places' ? 1 : bytes);
    if (longest === arriver || newest === undefined || length <= after) return undefined;
    dropped.push(newest);
    rests.set(longest, { places: left.places - 1, bytes: left.bytes - newest.entry.bytes, newest: newest.prev });
    lacking = { places: lacking.places - 1, bytes: lacking.bytes - newest.entry.bytes };
  }
  return dropped;
}

function ownOf(tenant: Tenant, kind: 'places' | 'bytes'): number {
  return kind === 'places' ? tenant.line.length : tenant.bytes;
}
