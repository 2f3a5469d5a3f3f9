/**
 * Idempotency-Keys over all replicas. A claim is durable before its request runs. One in flight stays until its replica says how the
 * request ended, also over the replica's restart, which finds that in its spool; it is forgotten with `until` at the latest.
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
  until timestamptz not null
);
create index claim_until on ra_sidecar.claim (until);
create index claim_running on ra_sidecar.claim (replica) where not completed;
insert into ra_sidecar.swept values ('claim', '-infinity');

-- outcome: claimed, in-flight, completed, other-body, or why it was not claimed: fenced, late, as for take.
create function ra_sidecar.claim(
  p_no int, p_epoch int, p_beat int, p_request bigint, p_id uuid, p_fingerprint bytea, p_keep_ms bigint
) returns table (outcome text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_replica replica;
  v_claim claim;
begin
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
  insert into claim values (p_id, p_fingerprint, false, p_no, p_epoch, p_request, clock_timestamp() + p_keep_ms * interval '1 ms')
  on conflict (id) do update set fingerprint = excluded.fingerprint, completed = false, replica = excluded.replica,
    epoch = excluded.epoch, request = excluded.request, until = excluded.until;
  return query select 'claimed';
end $$;

-- Requests with claims have ended. Those that were not completed give up their keys. p_doubtful: whether they were claimed is not known.
create function ra_sidecar.finish(
  p_no int, p_epoch int, p_requests bigint[], p_ids uuid[], p_completed bool[], p_doubtful bool
) returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
begin
  if p_doubtful then
    perform pg_advisory_xact_lock(lock) from (
      select distinct uuid_hash_extended(i, 1) as lock from unnest(p_ids) i order by 1
    ) locks;
  end if;
  update claim c set completed = true from unnest(p_requests, p_ids, p_completed) as e(request, id, completed)
    where e.completed and c.id = e.id and c.replica = p_no and c.epoch = p_epoch and c.request = e.request;
  delete from claim c using unnest(p_requests, p_ids, p_completed) as e(request, id, completed)
    where not e.completed and c.id = e.id and c.replica = p_no and c.epoch = p_epoch and c.request = e.request;
  return query select true;
end $$;

-- What earlier starts of a replica left in flight.
create function ra_sidecar.left_claims(p_no int, p_epoch int) returns table (id uuid)
language sql stable security definer set search_path = ra_sidecar, pg_temp as $$
  select c.id from ra_sidecar.claim c where c.replica = p_no and c.epoch < p_epoch and not c.completed limit 100000;
$$;

-- The replica has found in its spool which of these were completed; it gives up the others.
create function ra_sidecar.settle_claims(p_no int, p_epoch int, p_completed uuid[], p_others uuid[]) returns table (done bool)
language sql security definer set search_path = ra_sidecar, pg_temp as $$
  update ra_sidecar.claim c set completed = true
    where c.id = any(p_completed) and c.replica = p_no and c.epoch < p_epoch and not c.completed;
  delete from ra_sidecar.claim c
    where c.id = any(p_others) and c.replica = p_no and c.epoch < p_epoch and not c.completed;
  select true;
$$;

create function ra_sidecar.sweep_claims() returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_from timestamptz;
  v_until timestamptz := clock_timestamp();
begin
  perform set_config('synchronous_commit', 'off', true);
  select s.until into v_from from swept s where s.what = 'claim' for update skip locked;
  if v_from is null or v_from > v_until - interval '1 minute' then
    return query select false; return;
  end if;
  delete from claim c where c.until > v_from and c.until <= v_until;
  update swept s set until = v_until where s.what = 'claim';
  return query select true;
end $$;
`;
