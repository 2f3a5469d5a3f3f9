/**
 * Limits of keys over all replicas. A stamp (`hit`) for each request of the last minute, a place (`flight`) for each that runs; both
 * are exact, since `take` reads the clock and counts while it holds the lock of its key.
 *
 * The stamps of a key are numbered, so that how many a minute has is known from its last one and its first one, and from those that were
 * taken back (`freed`): no take reads all of them.
 *
 * Rows that were deleted or changed stay in an index while an old transaction runs in the database. No count may walk over them, so each
 * begins at a bound: a minute ago for stamps, `replica.oldest` for places, `swept` for the removal of old stamps. For the same reason
 * there is no counter beside the stamps, which each request would change, and no plan that reads a whole table, which may have grown since.
 * Each table has a condition that an index serves, small ones too: PostgreSQL before 18 adds so much to the cost of a plan that reads a
 * whole table all the same that it compiles it for each call.
 *
 * A place counts while its replica's lease runs. A take whose answer was lost may still arrive: it is void once its replica has made
 * two beats more, and only then does the replica remove what it may have left.
 *
 * The commits are asynchronous: a crash of the database loses those of the last 600 ms at most.
 */
export const LIMITS = `
create table ra_sidecar.hit (
  key uuid not null,
  at timestamptz not null,
  n bigint not null,
  replica int not null,
  request bigint not null,
  primary key (key, at, n)
);
create index hit_at on ra_sidecar.hit (at);
create table ra_sidecar.freed (key uuid not null, n bigint not null, at timestamptz not null, primary key (key, n));
create table ra_sidecar.flight (
  key uuid not null,
  replica int not null,
  request bigint not null,
  epoch int not null,
  primary key (key, replica, request, epoch)
);
create table ra_sidecar.swept (what text primary key, until timestamptz not null);
insert into ra_sidecar.swept values ('hit', '-infinity');

-- Takes the locks of keys for the transaction, in one order for all.
create function ra_sidecar.lock_keys(p_keys uuid[], p_seed bigint) returns void
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(lock) from (
    select distinct uuid_hash_extended(k, p_seed) as lock from unnest(p_keys) k order by 1
  ) locks;
end $$;

-- Requests of some keys, one row for each key: of its requests the first are let in, as many as taken says. p_counts: how many of
-- p_requests each has. p_in_flight, p_per_minute: 0 is no limit. used, running: those counted before. outcome: taken (all), inFlight or
-- perMinute (what refused the others), or why none was counted: busy (another call has the key's lock), fenced (another process took the
-- replica's place, or the store does not know it), lease (its lease is over), late (sent two beats ago). p_ended: requests, of p_ended_keys,
-- that have ended, and have no place any more. p_waits: for the lock of the only key, p_wait_ms at most.
create function ra_sidecar.take(
  p_no int, p_epoch int, p_beat int, p_keys uuid[], p_counts int[], p_requests bigint[], p_in_flight int[], p_per_minute int[],
  p_ended_keys uuid[], p_ended bigint[], p_waits bool, p_wait_ms int
) returns table (outcome text, taken int, retry_ms int, used int, reset_ms int, running int)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
  v_set text := set_config('synchronous_commit', 'off', true) || set_config('lock_timeout', p_wait_ms::text, true);
  v_locked bool[]; v_begun int := 0; v_now timestamptz;
  v_key uuid; v_count int; v_in_flight int; v_per_minute int;
  v_replica record; v_first record; v_last record; v_freed record;
  v_used bigint; v_n bigint;
begin
  if pg_is_in_recovery() then perform must_write(); end if;
  for k in 1..cardinality(p_keys) loop
    v_locked[k] := pg_try_advisory_xact_lock(uuid_hash_extended(p_keys[k], 0));
    if p_waits and not v_locked[k] then perform lock_keys(p_keys, 0); v_locked[k] := true; end if;
  end loop;
  for i in 1..cardinality(p_ended) loop
    delete from flight f where f.key = p_ended_keys[i] and f.replica = p_no and f.request = p_ended[i] and f.epoch = p_epoch;
  end loop;
  select r.epoch, r.beat, r.lease_until into v_replica from replica r where r.no = p_no;
  for k in 1..cardinality(p_keys) loop
    v_key := p_keys[k]; v_count := p_counts[k]; v_in_flight := p_in_flight[k]; v_per_minute := p_per_minute[k];
    v_now := clock_timestamp();
    retry_ms := null; used := 0; reset_ms := 0; running := 0;
    outcome := case when not v_locked[k] then 'busy' when v_replica.epoch is distinct from p_epoch then 'fenced'
      when v_replica.lease_until <= v_now then 'lease' when v_replica.beat > p_beat + 1 then 'late' else 'taken' end;
    taken := case outcome when 'taken' then v_count else 0 end;
    if v_in_flight > 0 and outcome = 'taken' then
      select coalesce(sum((
        select count(*) from flight f where f.key = v_key and f.replica = r.no and f.epoch = r.epoch and f.request >= r.oldest
      )), 0) into running from replica r where r.no > 0
        and (r.lease_until > v_now or r.lease_until > (select e.grace_from from fleet e where e.one and e.grace_until > v_now));
      taken := least(taken, greatest(0, v_in_flight - running));
    end if;
    if v_per_minute > 0 and outcome = 'taken' then
      -- The last one first: what is taken back meanwhile may count, but never twice as taken back.
      select h.n, h.at into v_last from hit h where h.key = v_key and h.at > v_now - interval '60 seconds' order by h.at desc, h.n desc limit 1;
      select h.n, h.at into v_first from hit h where h.key = v_key and h.at > v_now - interval '60 seconds' order by h.at, h.n limit 1;
      select count(*) filter (where f.n < v_last.n), max(f.n) as n into v_freed
        from freed f where f.key = v_key and f.n > coalesce(v_first.n, v_last.n);
      v_used := coalesce(v_last.n - v_first.n + 1 - v_freed.count, 0);
      -- Numbers have gaps if the clock of the host was set back.
      if v_used > v_per_minute then select count(*) into v_used from hit h where h.key = v_key and h.at > v_now - interval '60 seconds'; end if;
      used := v_used;
      taken := least(taken, greatest(0, v_per_minute - used));
      -- Without a stamp in the minute: above the number of each one before.
      v_n := greatest(coalesce(v_last.n, date_part('epoch', v_now) * 1000000), v_freed.n);
      v_now := greatest(v_now, v_last.at);
      reset_ms := ms_until(coalesce(v_first.at, v_now) + interval '60 seconds', v_now);
    end if;
    for i in 1..taken loop
      if v_per_minute > 0 then insert into hit values (v_key, v_now, v_n + i, p_no, p_requests[v_begun + i]); end if;
      if v_in_flight > 0 then insert into flight values (v_key, p_no, p_requests[v_begun + i], p_epoch); end if;
    end loop;
    if outcome = 'taken' and taken < v_count then
      outcome := 'inFlight';
      if v_per_minute > 0 and used + taken >= v_per_minute then
        outcome := 'perMinute';
        select ms_until(h.at + interval '60 seconds', v_now) into retry_ms from hit h
          where h.key = v_key and h.at > v_now - interval '60 seconds' order by h.at, h.n offset used + taken - v_per_minute limit 1;
      end if;
    end if;
    v_begun := v_begun + v_count;
    return next;
  end loop;
end $$;

create function ra_sidecar.ms_until(p_then timestamptz, p_now timestamptz) returns int
language sql immutable as $$
  select greatest(1, ceil(extract(epoch from p_then - p_now) * 1000))::int;
$$;

-- Requests have ended. p_ran: those that were refused after they had been taken lose their stamp. p_doubtful: whether they were
-- taken is not known.
create function ra_sidecar.release(
  p_no int, p_epoch int, p_requests bigint[], p_keys uuid[], p_ran bool[], p_doubtful bool
) returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' set enable_seqscan = off as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  -- A take that runs now has ended before its place is looked for.
  if p_doubtful then perform lock_keys(p_keys, 0); end if;
  for i in 1..cardinality(p_requests) loop
    delete from flight f where f.key = p_keys[i] and f.replica = p_no and f.request = p_requests[i] and f.epoch = p_epoch;
    continue when p_ran[i];
    with gone as (
      delete from hit h where h.key = p_keys[i] and h.at > now() - interval '61 seconds' and h.replica = p_no and h.request = p_requests[i]
        returning h.key, h.n, h.at
    )
    insert into freed select g.key, g.n, g.at from gone g on conflict do nothing;
  end loop;
  return query select true;
end $$;

-- Begins a removal of rows that are over by p_until: the bound of the last removal, which is locked. Null: another removal runs, or one
-- reached a time less than p_every before p_until.
create function ra_sidecar.begin_sweep(p_what text, p_until timestamptz, p_every interval) returns timestamptz
language plpgsql set search_path = ra_sidecar, pg_temp as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  return (select s.until from swept s
    where s.what = p_what and not (s.until <= p_until and s.until > p_until - p_every) for update skip locked);
end $$;

-- Ends it, when p_count rows were removed and p_last is the time of the last one. Returns whether there are others.
create function ra_sidecar.end_sweep(p_what text, p_until timestamptz, p_count bigint, p_last timestamptz) returns bool
language sql set search_path = ra_sidecar, pg_temp as $$
  -- Below the bound of the last removal if the clock of the host was set back.
  update swept s set until = case when p_count = 10000 then p_last else p_until end where s.what = p_what returning p_count = 10000;
$$;

-- Removes rows of a table whose p_time is at most p_until, some at a time. Returns whether there are others.
create function ra_sidecar.sweep_rows(p_table text, p_time text, p_until timestamptz, p_every interval) returns bool
language plpgsql set search_path = ra_sidecar, pg_temp as $$
declare
  v_from timestamptz := begin_sweep(p_table, p_until, p_every);
  v_count bigint;
  v_last timestamptz;
begin
  if v_from is null then return false; end if;
  execute format('with old as (
      select r.ctid from %1$I r where r.%2$I >= $1 and r.%2$I <= $2 order by r.%2$I limit 10000
    ), gone as (
      delete from %1$I r using old o where r.ctid = o.ctid returning r.%2$I as at
    )
    select count(*), max(g.at) from gone g', p_table, p_time) into v_count, v_last using v_from, p_until;
  return end_sweep(p_table, p_until, v_count, v_last);
end $$;

-- Removes stamps older than a minute; more: there are others. Every replica calls it now and then.
create function ra_sidecar.sweep() returns table (more bool)
language sql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
  select sweep_rows('hit', 'at', clock_timestamp() - interval '61 seconds', interval '1 second');
$$;
`;
