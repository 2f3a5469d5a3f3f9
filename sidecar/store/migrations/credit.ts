/**
 * Prepaid credit over all replicas, by escrow. Amounts are picodollars.
 *
 *     account:  granted - settled - held = what can still be drawn      held = sum of (drawn - posted) over its escrows
 *     escrow:   drawn - posted = what the replica may spend, and has spent without the store knowing yet
 *
 * A replica draws from an account, runs its requests on that, and posts the prices of its closed requests from its spool:
 * the charges, and the position in the spool that they reach, are one transaction. A charge is never refused. If the escrow does not cover it,
 * since a failover lost the draw, the rest counts as drawn with it: the account's balance may become negative, and uncovered says by how much
 * it was overdrawn this way.
 *
 * drawn and posted only count for one run of a replica, which is one process and known by its first epoch. A process begins with
 * open_position, after which no earlier start posts; it posts what its spool has of earlier runs, and then opens its own run, which
 * gives back what the run before had drawn and not spent.
 *
 * Locks: who draws holds the replica's advisory lock shared, who opens holds it alone; then the position's row, then accounts in
 * the order of their names. An escrow is changed by who holds its account. What an answer says of an escrow is complete, and calls are
 * numbered: one whose answer was lost, and that arrives after a later one, changes nothing.
 *
 * Draws are durable before they are answered. Returns and posts are not: a crash that loses one leaves more held, and the replica
 * finds the position moved back and posts again.
 */
export const CREDIT = `
create table ra_sidecar.account (
  name text primary key,
  granted numeric not null default 0,
  settled numeric not null default 0,
  held numeric not null default 0,
  uncovered numeric not null default 0,
  recalled_at timestamptz not null default '-infinity'
) with (fillfactor = 50);

create table ra_sidecar.credit_grant (
  id text primary key,
  account text not null,
  amount numeric not null,
  at timestamptz not null default clock_timestamp()
);

create table ra_sidecar.charge (
  -- Of the usage record.
  id uuid primary key,
  account text not null,
  amount numeric not null,
  replica int not null,
  at timestamptz not null default clock_timestamp()
);
create index charge_at on ra_sidecar.charge (at);
insert into ra_sidecar.swept values ('charge', '-infinity');

create table ra_sidecar.escrow (
  replica int not null,
  account text not null,
  drawn numeric not null,
  posted numeric not null,
  -- The number of the last draw or return.
  seq bigint not null,
  primary key (replica, account)
) with (fillfactor = 50);

-- Up to where the spool of a replica is posted, by the start with this epoch; its escrows are those of run.
create table ra_sidecar.spool_position (
  replica int primary key,
  epoch int not null,
  run int not null,
  segment bigint not null,
  byte bigint not null
) with (fillfactor = 50);

-- What operators did. Only functions that change something write it.
create table ra_sidecar.audit (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  operator text not null,
  action text not null,
  account text,
  replica text,
  amount numeric,
  detail text
);

-- A start of a replica begins to post: no earlier one posts from here on. A replica without a position gets the given one.
create function ra_sidecar.open_position(p_no int, p_epoch int, p_segment bigint, p_byte bigint)
returns table (outcome text, run int, segment bigint, byte bigint)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
#variable_conflict use_column
declare
  v_epoch int;
begin
  perform must_write();
  perform pg_advisory_xact_lock(7265, p_no);
  select r.epoch into v_epoch from replica r where r.no = p_no;
  if v_epoch is distinct from p_epoch then return query select 'fenced', 0, 0::bigint, 0::bigint; return; end if;
  insert into spool_position as s values (p_no, p_epoch, 0, p_segment, p_byte)
    on conflict (replica) do update set epoch = p_epoch;
  return query select 'opened', s.run, s.segment, s.byte from spool_position s where s.replica = p_no;
end $$;

-- Posts the charges of the records between two positions of the replica's spool. outcome: posted, moved (it is posted up to the
-- position that is returned, not from p_from), closed (open_position is needed first), fenced. uncovered: by how much the charges
-- exceeded the replica's escrow.
create function ra_sidecar.post(
  p_no int, p_epoch int, p_from_segment bigint, p_from_byte bigint, p_segment bigint, p_byte bigint,
  p_ids uuid[], p_accounts text[], p_amounts numeric[]
) returns table (outcome text, segment bigint, byte bigint, uncovered numeric)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
#variable_conflict use_column
declare
  v_position spool_position;
  v_uncovered numeric;
begin
  perform must_write();
  perform set_config('synchronous_commit', 'off', true);
  update spool_position s set segment = p_segment, byte = p_byte
    where s.replica = p_no and s.epoch = p_epoch and s.segment = p_from_segment and s.byte = p_from_byte;
  if not found then
    select * into v_position from spool_position s where s.replica = p_no;
    return query select case
      when v_position.epoch > p_epoch then 'fenced'
      when v_position.epoch = p_epoch then 'moved'
      else 'closed' end, v_position.segment, v_position.byte, 0::numeric;
    return;
  end if;
  insert into account (name) select distinct a from unnest(p_accounts) a order by a on conflict do nothing;
  perform 1 from account a where a.name = any(p_accounts) order by a.name for update;
  with fresh as (
    insert into charge (id, account, amount, replica)
      select c.id, c.account, c.amount, p_no from unnest(p_ids, p_accounts, p_amounts) as c(id, account, amount)
      on conflict do nothing returning account, amount
  ), sums as (
    select f.account, sum(f.amount) as amount, coalesce(max(e.drawn - e.posted), 0) as held
      from fresh f left join escrow e on e.replica = p_no and e.account = f.account group by f.account
  ), spent as (
    insert into escrow as e (replica, account, drawn, posted, seq) select p_no, s.account, s.amount, s.amount, 0 from sums s
      on conflict (replica, account) do update set
        posted = e.posted + excluded.posted, drawn = greatest(e.drawn, e.posted + excluded.posted)
  ), settled as (
    update account a set settled = a.settled + s.amount, held = a.held - least(s.amount, s.held),
      uncovered = a.uncovered + greatest(0, s.amount - s.held)
    from sums s where a.name = s.account
  )
  select coalesce(sum(greatest(0, s.amount - s.held)), 0) into v_uncovered from sums s;
  return query select 'posted', p_segment, p_byte, v_uncovered;
end $$;

-- A run of a replica begins, once all records of earlier runs are posted, which the position says: what these had drawn and not
-- spent is given back. outcome: open, moved, closed, fenced; no row: it has removed some of the escrows that were spent, and is to be
-- called again. released: how much was given back. p_operator: the name that an audit row gets, null for no row. The sidecars' role may
-- call this function with any name, so the row also has the role.
create function ra_sidecar.open_escrow(p_no int, p_epoch int, p_run int, p_segment bigint, p_byte bigint, p_operator text)
returns table (outcome text, released numeric)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_epoch int;
  v_position spool_position;
  v_released numeric;
  v_count int;
begin
  perform must_write();
  perform pg_advisory_xact_lock(7265, p_no);
  select r.epoch into v_epoch from replica r where r.no = p_no;
  if v_epoch is distinct from p_epoch then return query select 'fenced', 0::numeric; return; end if;
  select * into v_position from spool_position s where s.replica = p_no for update;
  if v_position.epoch is distinct from p_epoch then return query select 'closed', 0::numeric; return; end if;
  if v_position.run = p_run then return query select 'open', 0::numeric; return; end if;
  if (v_position.segment, v_position.byte) <> (p_segment, p_byte) then return query select 'moved', 0::numeric; return; end if;
  -- There is one of each account that paid here, however long ago.
  delete from escrow e where e.replica = p_no and e.account in (
    select s.account from escrow s where s.replica = p_no and s.drawn = s.posted limit 10000
  );
  get diagnostics v_count = row_count;
  if v_count = 10000 then return; end if;
  if p_operator is not null then
    insert into audit (operator, action, account, replica, amount, detail)
      select p_operator, 'reconcile', e.account, r.id, e.drawn - e.posted, 'role ' || session_user
      from escrow e join replica r on r.no = e.replica where e.replica = p_no and e.drawn > e.posted;
  end if;
  v_released := release_escrow(p_no);
  update spool_position s set run = p_run where s.replica = p_no;
  return query select 'open', v_released;
end $$;

-- Gives back what a replica holds, and lets no earlier start post; its advisory lock is held. Returns how much.
create function ra_sidecar.release_escrow(p_no int) returns numeric
language plpgsql set search_path = ra_sidecar, pg_temp as $$
declare
  v_released numeric;
begin
  update spool_position s set epoch = r.epoch from replica r where s.replica = p_no and r.no = p_no;
  perform 1 from account a
    where a.name in (select e.account from escrow e where e.replica = p_no and e.drawn > e.posted) order by a.name for update;
  with gone as (
    delete from escrow e where e.replica = p_no and e.drawn > e.posted returning e.account, e.drawn - e.posted as held
  ), given as (
    update account a set held = a.held - g.held from gone g where a.name = g.account
  )
  select coalesce(sum(g.held), 0) into v_released from gone g;
  return v_released;
end $$;

-- Draws for requests that wait. p_in_hand: what the replica has of the account and no request has reserved, which is below each of
-- p_needs; below 0 if a failover lost draws. Each need that the account can cover is drawn, in their order; if all are, up to p_chunk more,
-- and at most a share of what is left. outcome: drawn; short (a need was not covered); recalled (the same, and others were asked to
-- return what they do not use); yield (the same, but another call asked that up to 50 ms ago, and is to have what this replica has in hand);
-- fenced, closed, lease: nothing was done. drawn: what the replica has drawn in all.
create function ra_sidecar.draw(
  p_no int, p_epoch int, p_run int, p_seq bigint, p_account text, p_in_hand numeric, p_needs numeric[], p_chunk numeric,
  p_recall bool
) returns table (outcome text, drawn numeric, available numeric)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_refused text;
  v_account account;
  v_escrow escrow;
  v_free numeric;
  v_left numeric;
  v_need numeric;
  v_take numeric;
  v_outcome text := 'drawn';
begin
  perform must_write();
  perform pg_advisory_xact_lock_shared(7265, p_no);
  v_refused := escrow_problem(p_no, p_epoch, p_run);
  if v_refused is not null then return query select v_refused, 0::numeric, 0::numeric; return; end if;
  select * into v_account from account a where a.name = p_account for update;
  if not found then return query select 'short', 0::numeric, 0::numeric; return; end if;
  v_now := clock_timestamp();
  select * into v_escrow from escrow e where e.replica = p_no and e.account = p_account;
  if v_escrow.seq >= p_seq then
    -- A later call was first.
    return query select 'short', v_escrow.drawn, 0::numeric; return;
  end if;
  v_free := v_account.granted - v_account.settled - v_account.held;
  v_left := greatest(0, v_free) + p_in_hand;
  v_take := -p_in_hand;
  foreach v_need in array p_needs loop
    if v_need <= v_left then
      v_left := v_left - v_need;
      v_take := v_take + v_need;
    else
      v_outcome := 'short';
    end if;
  end loop;
  -- What it has covers the needs, or an earlier deficit cannot be made up.
  v_take := least(greatest(0, v_take), greatest(0, v_free));
  if v_outcome = 'drawn' then
    v_take := v_take + least(p_chunk, div(greatest(0, v_free - v_take),
      2 * greatest(1, (select count(*) from replica r where r.lease_until > v_now))));
  elsif p_recall and v_account.held > coalesce(v_escrow.drawn - v_escrow.posted, 0) then
    if v_account.recalled_at not between v_now - interval '250 ms' and v_now then
      update account a set recalled_at = v_now where a.name = p_account;
      perform pg_notify('ra_sidecar_recall', p_account);
      v_outcome := 'recalled';
    elsif v_account.recalled_at > v_now - interval '50 ms' then
      v_outcome := 'yield';
    end if;
  end if;
  if v_take > 0 then update account a set held = a.held + v_take where a.name = p_account; end if;
  -- Also without anything: an earlier draw that is still on its way finds that it is too late.
  insert into escrow as e (replica, account, drawn, posted, seq) values (p_no, p_account, v_take, 0, p_seq)
    on conflict (replica, account) do update set drawn = e.drawn + v_take, seq = p_seq;
  return query select v_outcome, coalesce(v_escrow.drawn, 0) + v_take, greatest(0, v_free - v_take);
end $$;

-- Why a replica may not change its escrow; null if it may. Its advisory lock is held, so that no later run opens meanwhile.
create function ra_sidecar.escrow_problem(p_no int, p_epoch int, p_run int) returns text
language plpgsql set search_path = ra_sidecar, pg_temp as $$
declare
  v_replica replica;
  v_position spool_position;
begin
  select * into v_replica from replica r where r.no = p_no;
  select * into v_position from spool_position s where s.replica = p_no;
  return case
    when v_replica.epoch is distinct from p_epoch then 'fenced'
    when v_position.epoch is distinct from p_epoch or v_position.run <> p_run then 'closed'
    when v_replica.lease_until <= clock_timestamp() then 'lease' end;
end $$;

-- Gives back what a replica does not use. Returns what it has drawn of each of these accounts; no rows: nothing was done.
create function ra_sidecar.return_escrow(
  p_no int, p_epoch int, p_run int, p_seq bigint, p_accounts text[], p_amounts numeric[]
) returns table (account text, drawn numeric)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
#variable_conflict use_column
begin
  perform must_write();
  perform set_config('synchronous_commit', 'off', true);
  perform pg_advisory_xact_lock_shared(7265, p_no);
  if coalesce(escrow_problem(p_no, p_epoch, p_run), 'lease') <> 'lease' then return; end if;
  perform 1 from account a where a.name = any(p_accounts) order by a.name for update;
  -- A first draw that is still on its way finds that it is too late.
  insert into escrow select p_no, a.name, 0, 0, p_seq from account a where a.name = any(p_accounts) on conflict do nothing;
  with back as (
    select e.account, least(b.amount, e.drawn - e.posted) as amount
      from unnest(p_accounts, p_amounts) as b(account, amount) join escrow e on e.replica = p_no and e.account = b.account
      where e.seq < p_seq
  ), given as (
    update escrow e set drawn = e.drawn - b.amount, seq = p_seq from back b where e.replica = p_no and e.account = b.account
  )
  update account a set held = a.held - b.amount from back b where a.name = b.account;
  return query select b.account, coalesce(e.drawn, 0)
    from unnest(p_accounts) as b(account) left join escrow e on e.replica = p_no and e.account = b.account;
end $$;

-- The accounts that were recalled in the last two seconds and of which the replica holds something: for one that hears no notification.
create function ra_sidecar.recalls(p_no int) returns table (account text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
begin
  perform must_write();
  return query select a.name from escrow e join account a on a.name = e.account
    where e.replica = p_no and e.drawn > e.posted and a.recalled_at > clock_timestamp() - interval '2 seconds' limit 1000;
end $$;

-- An account, or without one the first thousand after p_after.
create function ra_sidecar.balances(p_account text, p_after text)
returns table (account text, granted numeric, settled numeric, held numeric, uncovered numeric)
language sql stable security definer set search_path = ra_sidecar, pg_temp as $$
  select name, granted, settled, held, uncovered from ra_sidecar.account
  where (p_account is null and name > p_after) or name = p_account order by name limit 1000;
$$;

-- The replicas, or one of them. held: what it has drawn and not posted; those that hold something come first.
create function ra_sidecar.replicas(p_id text)
returns table (id text, host text, release text, epoch int, joined_at timestamptz, lease_ms bigint, held numeric)
language sql stable security definer set search_path = ra_sidecar, pg_temp as $$
  select r.id, r.host, r.release, r.epoch, r.joined_at, (extract(epoch from r.lease_until - clock_timestamp()) * 1000)::bigint, e.held
  from ra_sidecar.replica r,
    lateral (select coalesce(sum(e.drawn - e.posted), 0) as held from ra_sidecar.escrow e where e.replica = r.no) e
  where p_id is null or r.id = p_id order by e.held > 0 desc, r.lease_until desc, r.id limit 1000;
$$;

-- Grants credit. done: false if there is a grant with this id; nothing is changed then. p_operator: as for open_escrow.
create function ra_sidecar.grant_credit(p_id text, p_account text, p_amount numeric, p_operator text) returns table (done bool)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
begin
  perform must_write();
  insert into credit_grant (id, account, amount) values (p_id, p_account, p_amount) on conflict (id) do nothing;
  done := found;
  if done then
    insert into audit (operator, action, account, amount, detail)
      values (p_operator, 'grant', p_account, p_amount, p_id || ', role ' || session_user);
    insert into account as a (name, granted) values (p_account, p_amount)
      on conflict (name) do update set granted = a.granted + excluded.granted;
  end if;
  return next;
end $$;

-- Gives back what a replica holds whose data folder is lost; it is fenced. p_longest_ms: how long its requests may last after its lease.
-- outcome: done, unknown, early (wait_ms is left, or p_longest_ms is below 0). p_operator: as for open_escrow.
create function ra_sidecar.write_off(p_id text, p_longest_ms bigint, p_operator text)
returns table (outcome text, wait_ms bigint, released numeric)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_no int;
begin
  perform must_write();
  -- First, so that no call of a replica that runs waits for this one. One that starts meanwhile is not written off.
  update replica r set epoch = r.epoch + 1, beat = r.beat + 1
    where r.id = p_id and p_longest_ms >= 0 and r.lease_until <= clock_timestamp() - p_longest_ms * interval '1 ms'
    returning r.no into v_no;
  if not found then
    return query select 'early', ceil(extract(epoch from r.lease_until - clock_timestamp()) * 1000)::bigint + p_longest_ms, 0::numeric
      from replica r where r.id = p_id;
    if not found then return query select 'unknown', 0::bigint, 0::numeric; end if;
    return;
  end if;
  perform pg_advisory_xact_lock(7265, v_no);
  perform 1 from spool_position s where s.replica = v_no for update;
  insert into audit (operator, action, account, replica, amount, detail)
    select p_operator, 'write-off', e.account, p_id, coalesce(e.drawn - e.posted, 0), 'role ' || session_user
    from (values (1)) one left join escrow e on e.replica = v_no and e.drawn > e.posted;
  return query select 'done', 0::bigint, release_escrow(v_no);
end $$;

-- Removes charges older than a week; more: there are others. The spools, and what they delivered, are the journal.
create function ra_sidecar.sweep_charges() returns table (more bool)
language sql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
  select sweep_rows('charge', 'at', clock_timestamp() - interval '7 days', interval '1 minute');
$$;

-- Balances for callers and operators.
create function ra_sidecar.balances_of(p_accounts text[])
returns table (account text, granted numeric, settled numeric, held numeric)
language sql stable security definer set search_path = ra_sidecar, pg_temp as $$
  select name, granted, settled, held from ra_sidecar.account where name = any(p_accounts);
$$;
`;
