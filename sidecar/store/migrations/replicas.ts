/**
 * The replicas of a fleet: one row for each data folder. Its epoch rises with each start, so that a process which runs on beside its
 * successor is told apart; its lease is extended by each beat.
 */
export const REPLICAS = `
create table ra_sidecar.replica (
  no int generated always as identity primary key,
  id text not null unique,
  host text not null,
  release text not null,
  epoch int not null,
  -- Counts beats: a call that was sent two beats ago is void.
  beat int not null default 0,
  -- The lowest number of a request that the replica still holds a place for.
  oldest bigint not null default 0,
  joined_at timestamptz not null,
  lease_until timestamptz not null
) with (fillfactor = 50);

-- The leases that ended together: while the store was down, or since its clock was set ahead. Until grace_until the places of those
-- replicas that still had one after grace_from count: they may run, and are to beat again.
create table ra_sidecar.fleet (
  one bool primary key default true check (one),
  grace_from timestamptz not null default '-infinity',
  grace_until timestamptz not null default '-infinity'
);
insert into ra_sidecar.fleet default values;

-- A standby, or a primary that was demoted, answers from old rows: what decides without a write calls this first.
create function ra_sidecar.must_write() returns void
language plpgsql as $$
begin
  if pg_is_in_recovery() then raise exception 'the store is read-only' using errcode = 'read_only_sql_transaction'; end if;
end $$;

-- Called before a lease begins or is extended.
create function ra_sidecar.note_outage(p_lease interval) returns void
language plpgsql set search_path = ra_sidecar, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
  v_last timestamptz := (select max(r.lease_until) from replica r);
begin
  if v_last <= v_now then update fleet set grace_from = v_last - p_lease, grace_until = v_now + p_lease; end if;
end $$;

create function ra_sidecar.schema_version() returns table (version int)
language sql stable security definer set search_path = ra_sidecar, pg_temp as $$
  select coalesce(max(m.version), 0) from ra_sidecar.migration m;
$$;

-- A replica starts. Its epoch is above that of all its earlier starts and above p_epoch, of which it knows.
create function ra_sidecar.join_fleet(p_id text, p_host text, p_release text, p_epoch int, p_lease_ms int)
returns table (no int, epoch int, beat int, replicas int)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_replica replica;
begin
  perform note_outage(p_lease_ms * interval '1 ms');
  insert into replica as r (id, host, release, epoch, joined_at, lease_until)
  values (p_id, p_host, p_release, p_epoch + 1, v_now, v_now + p_lease_ms * interval '1 ms')
  on conflict (id) do update set
    host = p_host, release = p_release, epoch = greatest(r.epoch, p_epoch) + 1, beat = r.beat + 1, oldest = 0,
    joined_at = v_now, lease_until = excluded.lease_until
  returning * into v_replica;
  return query select v_replica.no, v_replica.epoch, v_replica.beat,
    (select count(*)::int from replica r where r.lease_until > v_now);
end $$;

-- A replica is alive. No row: the store does not know this start of it. epoch above p_epoch: another process took its place. Its commit
-- waits for no standby: a lease that a failover loses is one that the next beat renews.
create function ra_sidecar.beat(p_no int, p_epoch int, p_lease_ms int, p_oldest bigint)
returns table (epoch int, beat int, replicas int)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  perform set_config('synchronous_commit', 'off', true);
  perform note_outage(p_lease_ms * interval '1 ms');
  update replica r set beat = r.beat + 1, oldest = p_oldest, lease_until = v_now + p_lease_ms * interval '1 ms'
  where r.no = p_no and r.epoch = p_epoch;
  return query select r.epoch, r.beat, (select count(*)::int from replica o where o.lease_until > v_now)
  from replica r where r.no = p_no;
end $$;

-- A replica ends: its places are free at once.
create function ra_sidecar.leave_fleet(p_no int, p_epoch int) returns table (done bool)
language sql security definer set search_path = ra_sidecar, pg_temp as $$
  update ra_sidecar.replica set lease_until = clock_timestamp(), oldest = 9223372036854775807
  where no = p_no and epoch = p_epoch returning true;
$$;
`;
