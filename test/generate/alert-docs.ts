/** The list of alerts in docs/incidents.md, from the rules that are shipped. */
import { readFileSync } from 'node:fs';
import { sourceRoot } from '../support/source-root.js';

/** The text of each rule of deploy/prometheus/alerts.yml, from its name to the next. */
export function alertRules(): readonly string[] {
  const text = readFileSync(`${sourceRoot}/deploy/prometheus/alerts.yml`, 'utf8');
  return text.split(/^ {6}- alert: /m).slice(1);
}

const PLACE = /(<!-- alerts: .*? -->)[^]*?(<!-- \/alerts -->)/;

/** The page with the list of alerts in its place: those that need someone now first. */
export function withAlerts(page: string): string {
  const lists = (['critical', 'warning'] as const).map((severity) => {
    const lines = alertRules().filter((rule) => fieldOf(rule, 'labels') === `{ severity: ${severity} }`);
    return `${HEADS[severity]}\n\n${lines.map(lineOf).join('\n')}\n`;
  });
  return page.replace(PLACE, (_, begin: string, end: string) => `${begin}\n\n${lists.join('\n')}\n${end}`);
}

const HEADS = {
  critical: '`critical`: callers are refused, or usage is at risk, now.',
  warning: '`warning`: look today.',
} as const;

function lineOf(rule: string): string {
  const name = rule.slice(0, rule.indexOf('\n'));
  const runbook = fieldOf(rule, 'runbook').replace('docs/', '');
  const says = fieldOf(rule, 'summary')
    .replace(/^'|'$/g, '')
    .replace(/{{ \$(?:labels\.)?(\w+)[^}]*}}/g, '_$1_');
  return `- \`${name}\`: ${says} → [${runbook.replace(/.*#/, '').replaceAll('-', ' ')}](${runbook.replace('incidents.md#', '#')})`;
}

function fieldOf(rule: string, name: string): string {
  return new RegExp(`^ +${name}: (.*)$`, 'm').exec(rule)?.[1] ?? '';
}
