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
  insert into replica as r (id, host, release, epoch, joined_at, lease_until)
  values (p_id, p_host, p_release, p_epoch + 1, v_now, v_now + p_lease_ms * interval '1 ms')
  on conflict (id) do update set
    host = p_host, release = p_release, epoch = greatest(r.epoch, p_epoch) + 1, beat = r.beat + 1, oldest = 0,
    joined_at = v_now, lease_until = excluded.lease_until
  returning * into v_replica;
  return query select v_replica.no, v_replica.epoch, v_replica.beat,
    (select count(*)::int from replica r where r.lease_until > v_now);
end $$;

-- A replica is alive. No row: the store does not know this start of it. epoch above p_epoch: another process took its place.
create function ra_sidecar.beat(p_no int, p_epoch int, p_lease_ms int, p_oldest bigint)
returns table (epoch int, beat int, replicas int)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  update replica r set beat = r.beat + 1, oldest = p_oldest, lease_until = v_now + p_lease_ms * interval '1 ms'
  where r.no = p_no and r.epoch = p_epoch;
  return query select r.epoch, r.beat, (select count(*)::int from replica o where o.lease_until > v_now)
  from replica r where r.no = p_no;
end $$;

-- A replica ends: its places are free at once.
create function ra_sidecar.leave_fleet(p_no int, p_epoch int) returns table (done bool)
language sql security definer set search_path = ra_sidecar, pg_temp as $$
  update ra_sidecar.replica set lease_until = clock_timestamp() where no = p_no and epoch = p_epoch returning true;
$$;

create function ra_sidecar.replicas()
returns table (id text, host text, release text, epoch int, joined_at timestamptz, lease_ms int)
language sql stable security definer set search_path = ra_sidecar, pg_temp as $$
  select id, host, release, epoch, joined_at,
    (extract(epoch from greatest(lease_until - clock_timestamp(), interval '-20 days')) * 1000)::int
  from ra_sidecar.replica order by lease_until desc, id limit 1000;
$$;
`;
