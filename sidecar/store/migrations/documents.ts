/**
 * Keys and prices of a fleet. Each replica keeps a whole copy of both in the form of their files, and reads it again when the revision is
 * another one. A revision is random: one that a failover lost is never that of a later change.
 *
 * Keys are rows, so that a change need not move all of them. Every change compares the revision that it was made from, and is one
 * transaction with its row in the audit and its notification. Only the owner of the schema can change the audit.
 */
export const DOCUMENTS = `
create table ra_sidecar.document (
  name text primary key,
  revision uuid not null default gen_random_uuid(),
  -- Of prices; null: none yet. Keys are in the tables below.
  content text
) with (fillfactor = 50);
insert into ra_sidecar.document (name) values ('keys'), ('prices');

create table ra_sidecar.api_key (
  -- The order of the keys.
  no bigint generated always as identity primary key,
  id text not null unique,
  hash text not null unique,
  account text,
  -- As in a keys file.
  entry json not null,
  bytes integer not null generated always as (octet_length(entry::text)) stored
);
create index api_key_account on ra_sidecar.api_key (account);

create table ra_sidecar.key_account (
  name text primary key,
  -- As in a keys file.
  properties json not null,
  bytes integer not null generated always as (octet_length(name) + octet_length(properties::text) + 8) stored
);

create function ra_sidecar.keys_text() returns text
language sql stable set search_path = ra_sidecar, pg_temp as $$
  select '{"version":1,"accounts":'
    || coalesce((select json_object_agg(a.name, a.properties order by a.name)::text from key_account a), '{}')
    || ',"keys":[' || coalesce((select string_agg(k.entry::text, ',' order by k.no) from api_key k), '') || ']}';
$$;

-- A document: its content only where its revision is not p_revision, null if there is none yet.
create function ra_sidecar.document(p_name text, p_revision uuid) returns table (revision uuid, content text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
begin
  perform must_write();
  return query select d.revision, case
      when d.revision = p_revision then null
      when d.name = 'keys' then keys_text()
      else d.content end
    from document d where d.name = p_name;
end $$;

-- A keys file with one key and its account, or with one account and a key of it.
create function ra_sidecar.keys_part(p_key text, p_account text) returns table (revision uuid, content text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
begin
  perform must_write();
  return query select d.revision, json_build_object(
      'version', 1,
      'accounts', coalesce((
        select json_object_agg(a.name, a.properties) from key_account a
          where a.name = coalesce(p_account, (select k.account from api_key k where k.id = p_key))), '{}'),
      'keys', coalesce((
        select json_agg(k.entry) from (
          select k.entry from api_key k where k.id = p_key or (p_key is null and k.account = p_account) limit 1
        ) k), '[]')
    )::text from document d where d.name = 'keys';
end $$;

-- What each change ends with. Returns the new revision.
create function ra_sidecar.note_change(p_name text, p_operator text, p_action text, p_account text, p_detail text) returns uuid
language plpgsql set search_path = ra_sidecar, pg_temp as $$
declare
  v_revision uuid := gen_random_uuid();
begin
  -- No replica would read a longer file. What locks out callers is done all the same.
  if p_name = 'keys' and p_action not in ('revoke', 'freeze') and 64000000 < (
    (select coalesce(sum(k.bytes), 0) from api_key k) + (select coalesce(sum(a.bytes), 0) from key_account a)
  ) then
    raise exception 'the keys are too long' using errcode = 'program_limit_exceeded';
  end if;
  update document d set revision = v_revision where d.name = p_name;
  insert into audit (operator, action, account, detail) values (p_operator, p_action, p_account, p_detail);
  perform pg_notify('ra_sidecar_change', p_name);
  return v_revision;
end $$;

-- Keys and accounts take the place of those with their ids and names, or are added. outcome: changed, or moved: another change was first.
create function ra_sidecar.change_keys(
  p_revision uuid, p_keys json, p_accounts json, p_operator text, p_action text, p_account text, p_detail text
) returns table (outcome text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
declare
  v_revision uuid;
begin
  perform must_write();
  select d.revision into v_revision from document d where d.name = 'keys' for update;
  if v_revision <> p_revision then return query select 'moved'; return; end if;
  insert into api_key as k (id, hash, account, entry)
    select e->>'id', e->>'hash', e->>'account', e from json_array_elements(p_keys) e
    on conflict (id) do update set hash = excluded.hash, account = excluded.account, entry = excluded.entry;
  insert into key_account (name, properties) select e.key, e.value from json_each(p_accounts) e
    on conflict (name) do update set properties = excluded.properties;
  perform note_change('keys', p_operator, p_action, p_account, p_detail);
  return query select 'changed';
end $$;

-- Adds keys and accounts that are not there, and leaves the others: an old file makes no revoked key valid. Returns how many were added.
create function ra_sidecar.import_keys(p_keys json, p_accounts json, p_operator text) returns table (keys int, accounts int)
language plpgsql security definer set search_path = ra_sidecar, pg_temp as $$
declare
  v_keys int;
  v_accounts int;
begin
  perform must_write();
  perform 1 from document d where d.name = 'keys' for update;
  insert into api_key (id, hash, account, entry)
    select e->>'id', e->>'hash', e->>'account', e from json_array_elements(p_keys) with ordinality g(e, n) order by n
    on conflict (id) do nothing;
  get diagnostics v_keys = row_count;
  insert into key_account (name, properties) select e.key, e.value from json_each(p_accounts) e on conflict do nothing;
  get diagnostics v_accounts = row_count;
  perform note_change('keys', p_operator, 'import', null, json_build_object('keys', v_keys, 'accounts', v_accounts)::text);
  return query select v_keys, v_accounts;
end $$;

-- A price file takes the place of the one with p_revision, which is its SHA-256; '': there is none. outcome: changed, or moved: it is not there.
create function ra_sidecar.change_prices(p_content text, p_revision text, p_operator text, p_detail text) returns table (outcome text)
language plpgsql security definer set search_path = ra_sidecar, pg_temp set lock_timeout = '200ms' as $$
begin
  perform must_write();
  update document d set content = p_content
    where d.name = 'prices' and coalesce(encode(sha256(convert_to(d.content, 'UTF8')), 'hex'), '') = p_revision;
  if not found then return query select 'moved'; return; end if;
  perform note_change('prices', p_operator, 'prices', null, p_detail);
  return query select 'changed';
end $$;
`;
