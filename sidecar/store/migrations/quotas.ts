/**
 * Quotas of tokens over all replicas. A row (`token_flight`) for each request that runs and each quota's owner, a key or an account: the
 * tokens that it has reserved, which count while its replica's lease runs. A stamp (`token_stamp`) for what was used: an extension stamps
 * the tokens since the one before for the minute, the end of a request stamps the rest, and all that is billed for the day and the month.
 *
 *     minute = stamps of 60 s + reserved - those of the reserved that have a stamp      day, month = totals + stamps + reserved
 *
 * There is no counter that each request changes, for the reason in limits.ts: the sweep moves stamps that have left the minute into the
 * totals of days (`token_total`). A statement that reads both sees them before or after that.
 *
 * The day of a request is that of the store's clock at its end, UTC. `take_tokens` holds the locks of its keys while it counts and reserves;
 * an end only turns what is reserved into as many stamps or fewer, in one statement, and needs none.
 */
export const QUOTAS = `
create table ra_sidecar.token_flight (
  key uuid not null,
  replica int not null,
  request bigint not null,
  epoch int not null,
  tokens bigint not null,
  -- Of these, the tokens that have a stamp.
  counted bigint not null,
  -- Where the replica's spool was: the request's records come after it.
  segment bigint not null,
  byte bigint not null,
  primary key (key, replica, request, epoch)
) with (fillfactor = 50);

create table ra_sidecar.token_stamp (
  key uuid not null,
  at timestamptz not null,
  replica int not null,
  request bigint not null,
  -- Tokens of the minute, and of the day and the month.
  minute bigint not null,
  day bigint not null,
  primary key (key, at, replica, request)
);
create index token_stamp_at on ra_sidecar.token_stamp (at);

create table ra_sidecar.token_total (
  key uuid not null,
  day date not null,
  tokens bigint not null,
  primary key (key, day)
) with (fillfactor = 50);
create index token_total_day on ra_sidecar.token_total (day);
insert into ra_sidecar.swept values ('token', '-infinity');

-- Requests of one caller, whose quotas are those of p_keys: three limits for each, of the minute, the day and the month; null: none. For each
-- request p_tokens in all; p_used is null if it begins, otherwise those that are used by now. A request that begins gets all or nothing, one
-- that runs as many as are left. granted: the tokens that each has then; -1: none was reserved, or it does not run. taken: what each quota
-- has used or reserved then; reset_ms: until all of it is there again. lacking: of the first request that begins and got nothing, the quota
-- that has enough last, by its place in p_limits, in retry_ms. outcome: done, or fenced, lease, late, as for take. p_segment, p_byte: where the
-- replica's spool is.
create function ra_sidecar.take_tokens(
  p_no int, p_epoch int, p_beat int, p_keys uuid[], p_limits bigint[], p_requests bigint[], p_tokens bigint[], p_used bigint[],
  p_wait_ms int, p_segment bigint, p_byte bigint
) returns table (outcome text, granted bigint[], taken bigint[], reset_ms bigint[], lacking int, retry_ms bigint)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set enable_seqscan = off as $$
declare
  v_set text := set_config('synchronous_commit', 'off', true) || set_config('lock_timeout', p_wait_ms::text, true);
  v_clock timestamptz;
  v_now timestamptz;
  v_day timestamptz;
  v_month timestamptz;
  v_ends timestamptz[];
  v_replica record;
  v_sums record;
  v_row token_flight;
  v_granted bigint[] := '{}';
  v_settled bigint[] := '{}';
  v_taken bigint[] := '{}';
  v_reset bigint[] := '{}';
  v_need bigint;
  v_free bigint;
  v_more bigint;
  v_used bigint;
  v_wait bigint;
begin
  if pg_is_in_recovery() then perform must_write(); end if;
  if cardinality(p_keys) > 1 or not pg_try_advisory_xact_lock(uuid_hash_extended(p_keys[1], 2)) then perform lock_keys(p_keys, 2); end if;
  -- Those that run may end now. Ends lock the rows of requests in the same order; one that comes later waits for the stamps and counts the rest.
  if array_remove(p_used, null) <> '{}' then
    perform 1 from token_flight f where f.key = any(p_keys) and f.replica = p_no and f.epoch = p_epoch
      and f.request = any(array(select e.request from unnest(p_requests, p_used) as e(request, used) where e.used is not null))
      order by f.request, f.key for update;
  end if;
  v_clock := clock_timestamp();
  -- The clock of the host may have been set back.
  select r.epoch, r.lease_until, r.beat, greatest(v_clock, max(newest.at)) as now into v_replica from replica r, unnest(p_keys) k,
    lateral (select max(s.at) as at from token_stamp s where s.key = k) newest where r.no = p_no group by r.no;
  v_now := v_replica.now;
  outcome := case when v_replica.epoch is distinct from p_epoch then 'fenced' when v_replica.lease_until <= v_clock then 'lease'
    when v_replica.beat > p_beat + 1 then 'late' end;
  if outcome is not null then return query select outcome, v_granted, v_taken, v_reset, 0, 0::bigint; return; end if;
  outcome := 'done';
  v_day := date_trunc('day', v_now, 'UTC');
  v_month := date_trunc('month', v_now, 'UTC');
  v_ends := array[v_now, v_day + interval '24 hours',
    ((v_month at time zone 'UTC') + interval '1 month') at time zone 'UTC'];
  for i in 1..cardinality(p_keys) loop
    select * into v_sums from (
      select coalesce(sum(s.minute) filter (where s.at > v_now - interval '60 seconds'), 0)::bigint as minute,
        max(s.at) filter (where s.minute > 0) as newest,
        coalesce(sum(s.day) filter (where s.at >= v_day), 0)::bigint as day,
        coalesce(sum(s.day) filter (where s.at >= v_month), 0)::bigint as month
      from swept w join token_stamp s on s.key = p_keys[i] and s.at >= least(w.until, v_now - interval '60 seconds')
      where w.what = 'token'
    ) stamps, (
      select coalesce(sum(t.tokens) filter (where t.day >= (v_day at time zone 'UTC')::date), 0)::bigint as days,
        coalesce(sum(t.tokens), 0)::bigint as months
      from token_total t where t.key = p_keys[i] and t.day >= (v_month at time zone 'UTC')::date
    ) totals, (
      select coalesce(sum(own.tokens), 0)::bigint as reserved, coalesce(sum(own.counted), 0)::bigint as counted
      from fleet e, replica r, lateral (
        select sum(f.tokens) as tokens, sum(f.counted) as counted from token_flight f
        where f.key = p_keys[i] and f.replica = r.no and f.epoch = r.epoch and f.request >= r.oldest
      ) own where e.one and r.no > 0 and (r.lease_until > v_clock or (e.grace_until > v_clock and r.lease_until > e.grace_from))
    ) flights;
    v_settled := v_settled || array[v_sums.minute, v_sums.day + v_sums.days, v_sums.month + v_sums.months];
    v_taken := v_taken || array[v_sums.minute + v_sums.reserved - v_sums.counted,
      v_sums.day + v_sums.days + v_sums.reserved, v_sums.month + v_sums.months + v_sums.reserved];
    v_ends[1] := coalesce(v_sums.newest + interval '60 seconds', v_now);
    v_reset := v_reset || array(select greatest(0, ceil(extract(epoch from e - v_now) * 1000))::bigint from unnest(v_ends) e);
  end loop;
  for i in 1..cardinality(p_requests) loop
    v_free := null;
    for j in 1..cardinality(p_limits) loop v_free := least(v_free, p_limits[j] - v_taken[j]); end loop;
    v_more := 0;
    if p_used[i] is null then
      if p_tokens[i] > v_free then
        v_need := coalesce(v_need, p_tokens[i]);
        v_granted := v_granted || -1::bigint;
      else
        v_more := p_tokens[i];
        insert into token_flight select k, p_no, p_requests[i], p_epoch, v_more, 0, p_segment, p_byte from unnest(p_keys) k;
        v_granted := v_granted || v_more;
      end if;
    else
      select * into v_row from token_flight f
        where f.key = p_keys[1] and f.replica = p_no and f.request = p_requests[i] and f.epoch = p_epoch;
      if not found then
        v_granted := v_granted || -1::bigint;
      else
        v_used := greatest(p_used[i], v_row.counted);
        insert into token_stamp as s select k, v_now, p_no, p_requests[i], v_used - v_row.counted, 0 from unnest(p_keys) k
          where v_used > v_row.counted
          on conflict (key, at, replica, request) do update set minute = s.minute + excluded.minute;
        -- What has a stamp stays reserved: it leaves the minute before the request's end.
        v_more := greatest(p_tokens[i], v_used) - v_row.tokens;
        v_more := least(v_more, greatest(0, coalesce(v_free, v_more)));
        update token_flight f set tokens = f.tokens + v_more, counted = v_used
          where f.key = any(p_keys) and f.replica = p_no and f.request = p_requests[i] and f.epoch = p_epoch;
        v_granted := v_granted || (v_row.tokens + v_more);
      end if;
    end if;
    for j in 1..cardinality(v_taken) loop v_taken[j] := v_taken[j] + v_more; end loop;
  end loop;
  lacking := 0;
  retry_ms := 0;
  for i in 1..cardinality(p_limits) loop
    continue when v_need is null or p_limits[i] is null or v_taken[i] + v_need <= p_limits[i];
    if i % 3 <> 1 then
      v_wait := case when v_settled[i] + v_need <= p_limits[i] then 1000 else v_reset[i] end;
    else
      select ceil(extract(epoch from w.at + interval '60 seconds' - v_now) * 1000) into v_wait from (
        select s.at, sum(s.minute) over (order by s.at desc, s.replica, s.request) as tokens from token_stamp s
        where s.key = p_keys[(i + 2) / 3] and s.at > v_now - interval '60 seconds'
      ) w where w.tokens + v_need > p_limits[i] order by w.at desc limit 1;
      v_wait := greatest(1000, coalesce(v_wait, 0));
    end if;
    if v_wait > retry_ms then lacking := i; retry_ms := v_wait; end if;
  end loop;
  return query select outcome, v_granted, v_taken, v_reset, lacking, retry_ms;
end $$;

-- Requests have ended, with the tokens that are billed: of a reply that is not billed nothing counts. p_doubtful: whether anything was
-- reserved for them is not known.
create function ra_sidecar.settle_tokens(
  p_no int, p_epoch int, p_requests bigint[], p_keys uuid[], p_used bigint[], p_doubtful bool
) returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  -- A call that runs now has ended before its row is looked for.
  if p_doubtful then perform lock_keys(p_keys, 2); end if;
  -- In the order in which take_tokens locks them.
  perform 1 from token_flight f join unnest(p_requests, p_keys) as e(request, key) on f.key = e.key and f.request = e.request
    where f.replica = p_no and f.epoch = p_epoch order by f.request, f.key for update of f;
  with gone as (
    delete from token_flight f using unnest(p_requests, p_keys, p_used) as e(request, key, used)
      where f.key = e.key and f.replica = p_no and f.request = e.request and f.epoch = p_epoch
      returning f.key, f.request, f.counted, e.used
  ), unbilled as (
    delete from token_stamp s using gone g where g.used < g.counted and s.key = g.key and s.replica = p_no
      and s.request = g.request and s.at > now() - interval '61 seconds'
  )
  insert into token_stamp as t
    select g.key, greatest(clock_timestamp(), (select max(s.at) from token_stamp s where s.key = g.key)), p_no, min(g.request),
      sum(case when g.used < g.counted then g.used else g.used - g.counted end), sum(g.used)
    from gone g where g.used > 0 group by g.key
    on conflict (key, at, replica, request) do update set minute = t.minute + excluded.minute, day = t.day + excluded.day;
  return query select true;
end $$;

-- What earlier processes of a replica left reserved, some of it at a time: of their first epoch. name: as records of usage have it.
create function ra_sidecar.left_tokens(p_no int, p_run int)
returns table (name text, epoch int, request bigint, key uuid, segment bigint, byte bigint, tokens bigint)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
begin
  perform must_write();
  return query select f.request::text, f.epoch, f.request, f.key, f.segment, f.byte, f.tokens from token_flight f
    where f.replica = p_no and f.epoch = (
      select min(e.epoch) from token_flight e where e.replica = p_no and e.epoch < p_run
    ) limit 1000;
end $$;

-- Moves stamps older than a minute into the totals of their days, some at a time; more: there are others. Removes totals of earlier months.
create function ra_sidecar.sweep_tokens() returns table (more bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_until timestamptz := clock_timestamp() - interval '61 seconds';
  v_from timestamptz := begin_sweep('token', v_until, interval '1 second');
  v_last timestamptz;
  v_count int;
begin
  if v_from is null then return query select false; return; end if;
  with old as (
    select s.key, s.at, s.replica, s.request from token_stamp s where s.at >= v_from and s.at <= v_until order by s.at limit 10000
  ), gone as (
    delete from token_stamp s using old o
      where s.key = o.key and s.at = o.at and s.replica = o.replica and s.request = o.request returning s.key, s.at, s.day
  ), added as (
    insert into token_total as t
      select g.key, (g.at at time zone 'UTC')::date, sum(g.day) from gone g where g.day > 0 group by 1, 2
      on conflict (key, day) do update set tokens = t.tokens + excluded.tokens
  )
  select count(*), max(g.at) into v_count, v_last from gone g;
  delete from token_total t where t.day < (v_until at time zone 'UTC')::date - 40;
  return query select end_sweep('token', v_until, v_count, v_last);
end $$;

-- Removes replicas that are gone for a week, and have no Idempotency-Key in flight and no escrow. Removes places of earlier starts and of
-- replicas that are gone for a day, and what was reserved by replicas that are removed, or not ended within a day of a replica's next start.
-- It reads all places, also those that were deleted, so it is called seldom.
create function ra_sidecar.sweep_replicas() returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  with gone as (
    delete from replica r where r.lease_until < clock_timestamp() - interval '7 days'
      and not exists (select 1 from claim c where c.replica = r.no and not c.completed)
      and not exists (select 1 from escrow e where e.replica = r.no and e.drawn > e.posted)
    returning r.no
  ), positions as (
    delete from spool_position s using gone g where s.replica = g.no
  )
  delete from escrow e using gone g where e.replica = g.no;
  delete from flight f where not exists (
    select 1 from replica r where r.no = f.replica and r.epoch = f.epoch and r.lease_until > clock_timestamp() - interval '1 day'
  );
  delete from freed f where f.at < clock_timestamp() - interval '61 seconds';
  delete from token_flight f where not exists (
    select 1 from replica r where r.no = f.replica and (r.epoch = f.epoch or r.joined_at > clock_timestamp() - interval '1 day')
  );
  return query select true;
end $$;
`;

/**
 * What the accounts of a fleet have used: of each replica the sums of each account in a day, as its own files have them. They are absolute
 * and replaced whole, so that to put them again changes nothing. Those of replicas that are gone stay, under the name of their data folder.
 */
export const USAGE = `
create table ra_sidecar.usage_day (
  account text not null,
  day date not null,
  replica text not null,
  -- JSON.
  sums text not null,
  primary key (account, day, replica)
);
create index usage_day_day on ra_sidecar.usage_day (day);
insert into ra_sidecar.swept values ('usage_day', '-infinity');

-- No row: another process took the replica's place, or the store does not know it.
create function ra_sidecar.put_usage(p_no int, p_epoch int, p_accounts text[], p_days date[], p_sums text[]) returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_replica text := (select r.id from replica r where r.no = p_no and r.epoch = p_epoch);
begin
  if v_replica is null then return; end if;
  insert into usage_day as u select g.account, g.day, v_replica, g.sums from unnest(p_accounts, p_days, p_sums) as g(account, day, sums)
    on conflict (account, day, replica) do update set sums = excluded.sums where u.sums <> excluded.sums;
  return query select true;
end $$;

-- What the other replicas have put of an account, from a day up to another one.
create function ra_sidecar.usage_of(p_no int, p_account text, p_from date, p_to date) returns table (day text, sums text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
declare
  v_replica text := (select r.id from replica r where r.no = p_no);
begin
  perform must_write();
  if v_replica is null then raise exception 'the store does not know this replica'; end if;
  return query select to_char(u.day, 'YYYY-MM-DD'), u.sums from usage_day u
    where u.account = p_account and u.day >= p_from and u.day < p_to and u.replica <> v_replica order by u.day, u.replica;
end $$;

-- What all replicas have put of a day; p_account null: of all accounts.
create function ra_sidecar.usage_on(p_day date, p_account text) returns table (sums text)
language sql security definer set search_path = ra_sidecar, pg_temp as $$
  select u.sums from usage_day u where u.day = p_day and (p_account is null or u.account = p_account) order by u.account, u.replica;
$$;

-- Removes days that no replica keeps any more; more: there are others.
create function ra_sidecar.sweep_usage() returns table (more bool)
language sql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
  select sweep_rows('usage_day', 'day', clock_timestamp() - interval '93 days', interval '1 hour');
$$;
`;
