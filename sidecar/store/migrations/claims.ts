/**
 * Idempotency-Keys over all replicas. A claim is durable before its request runs. One in flight stays until its replica says how the
 * request ended, also over the replica's restart, which finds that in its spool. It is forgotten keep_ms after its request was
 * completed, and after a day at least while nobody says how it ended.
 */
export const CLAIMS = `
create table ra_sidecar.claim (
  -- Of account and key.
  id uuid primary key,
  fingerprint bytea not null,
  completed bool not null default false,
  replica int not null,
  epoch int not null,
  request bigint not null,
  keep_ms bigint not null,
  -- Where the replica's spool was: the request's close comes after it.
  segment bigint not null,
  byte bigint not null,
  until timestamptz not null
);
create index claim_until on ra_sidecar.claim (until);
create index claim_running on ra_sidecar.claim (replica) where not completed;
insert into ra_sidecar.swept values ('claim', '-infinity');

-- outcome: claimed, in-flight, completed, other-body, or why it was not claimed: fenced, late, as for take.
create function ra_sidecar.claim(
  p_no int, p_epoch int, p_beat int, p_request bigint, p_id uuid, p_fingerprint bytea, p_keep_ms bigint,
  p_segment bigint, p_byte bigint
) returns table (outcome text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_replica replica;
  v_claim claim;
begin
  perform must_write();
  perform pg_advisory_xact_lock(uuid_hash_extended(p_id, 1));
  select * into v_replica from replica r where r.no = p_no;
  if v_replica.epoch is distinct from p_epoch then return query select 'fenced'; return; end if;
  if v_replica.beat > p_beat + 1 then return query select 'late'; return; end if;
  select * into v_claim from claim c where c.id = p_id;
  if v_claim.id is not null and v_claim.until > clock_timestamp() then
    return query select case
      when v_claim.fingerprint <> p_fingerprint then 'other-body'
      when v_claim.completed then 'completed'
      else 'in-flight' end;
    return;
  end if;
  delete from claim c where c.id = p_id;
  insert into claim values (p_id, p_fingerprint, false, p_no, p_epoch, p_request, p_keep_ms, p_segment, p_byte,
    clock_timestamp() + greatest(p_keep_ms * interval '1 ms', interval '1 day'));
  return query select 'claimed';
end $$;

-- Requests with claims have ended. Those that were not completed give up their keys. p_doubtful: whether they were claimed is not known.
-- The commit is asynchronous: after a crash that loses it the key stays in flight, until its replica starts again or for a day.
create function ra_sidecar.finish(
  p_no int, p_epoch int, p_requests bigint[], p_ids uuid[], p_completed bool[], p_doubtful bool
) returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  if p_doubtful then perform lock_keys(p_ids, 1); end if;
  update claim c set completed = true, until = clock_timestamp() + c.keep_ms * interval '1 ms' from unnest(p_requests, p_ids, p_completed) as e(request, id, completed)
    where e.completed and c.id = e.id and c.replica = p_no and c.epoch = p_epoch and c.request = e.request;
  delete from claim c using unnest(p_requests, p_ids, p_completed) as e(request, id, completed)
    where not e.completed and c.id = e.id and c.replica = p_no and c.epoch = p_epoch and c.request = e.request;
  return query select true;
end $$;

-- What earlier processes of a replica left in flight, some of it at a time: of their first epoch. name: as records of usage have it.
create function ra_sidecar.left_claims(p_no int, p_run int)
returns table (name text, epoch int, request bigint, key uuid, segment bigint, byte bigint, tokens bigint)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
begin
  perform must_write();
  return query select replace(c.id::text, '-', ''), c.epoch, c.request, c.id, c.segment, c.byte, 0::bigint from claim c
    where not c.completed and c.replica = p_no and c.epoch = (
      select min(e.epoch) from claim e where e.replica = p_no and e.epoch < p_run and not e.completed
    ) limit 1000;
end $$;

-- Removes keys that are over; more: there are others.
create function ra_sidecar.sweep_claims() returns table (more bool)
language sql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
  select sweep_rows('claim', 'until', clock_timestamp(), interval '1 minute');
$$;
`;
