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
  if v_replica.epoch is distinct from p_epoch then
    return query select 'fenced'; return;
  elsif v_replica.beat > p_beat + 1 then
    return query select 'late'; return;
  end if;
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
  if p_doubtful then
    perform pg_advisory_xact_lock(lock) from (
      select distinct uuid_hash_extended(i, 1) as lock from unnest(p_ids) i order by 1
    ) locks;
  end if;
  update claim c set completed = true, until = clock_timestamp() + c.keep_ms * interval '1 ms' from unnest(p_requests, p_ids, p_completed) as e(request, id, completed)
    where e.completed and c.id = e.id and c.replica = p_no and c.epoch = p_epoch and c.request = e.request;
  delete from claim c using unnest(p_requests, p_ids, p_completed) as e(request, id, completed)
    where not e.completed and c.id = e.id and c.replica = p_no and c.epoch = p_epoch and c.request = e.request;
  return query select true;
end $$;

-- What earlier starts of a replica left in flight, some of them at a time.
create function ra_sidecar.left_claims(p_no int, p_epoch int) returns table (id uuid, segment bigint, byte bigint)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
begin
  perform must_write();
  return query select c.id, c.segment, c.byte from claim c
    where c.replica = p_no and c.epoch < p_epoch and not c.completed limit 10000;
end $$;

-- The replica has found in its spool which of these were completed; it gives up the others.
create function ra_sidecar.settle_claims(p_no int, p_epoch int, p_completed uuid[], p_others uuid[]) returns table (done bool)
language sql security definer set search_path = ra_sidecar, pg_temp as $$
  update ra_sidecar.claim c set completed = true, until = clock_timestamp() + c.keep_ms * interval '1 ms'
    where c.id = any(p_completed) and c.replica = p_no and c.epoch < p_epoch and not c.completed;
  delete from ra_sidecar.claim c
    where c.id = any(p_others) and c.replica = p_no and c.epoch < p_epoch and not c.completed;
  select true;
$$;

-- Removes keys that are over, some at a time; more: there are others.
create function ra_sidecar.sweep_claims() returns table (more bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_from timestamptz;
  v_until timestamptz := clock_timestamp();
  v_last timestamptz;
  v_count int;
begin
  perform set_config('synchronous_commit', 'off', true);
  select s.until into v_from from swept s where s.what = 'claim' for update skip locked;
  if v_from is null or (v_from <= v_until and v_from > v_until - interval '1 minute') then
    return query select false; return;
  end if;
  with old as (
    select c.id from claim c where c.until >= v_from and c.until <= v_until order by c.until limit 10000
  ), gone as (
    delete from claim c using old o where c.id = o.id returning c.until
  )
  select count(*), max(g.until) into v_count, v_last from gone g;
  -- Below v_from if the clock of the host was set back.
  update swept s set until = case when v_count = 10000 then v_last else v_until end where s.what = 'claim';
  return query select v_count = 10000;
end $$;
`;
