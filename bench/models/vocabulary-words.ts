/**
 * The words that the tests’ vocabulary has as whole tokens, chosen by hand; within a list the more frequent first. Each
 * item is one piece to the `qwen2` pre-tokenizer (letters with at most one other character before them, or punctuation
 * with line breaks after it), since otherwise no merge could join it.
 */

/** English words; each gets a token with a space before it and one without. */
export const WORDS: readonly string[] = `
the of and to in a is that it was for on are as with his they at be this from I have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would other
into has more her two like him see time could no make than first been its who now people my made over did down only way
find use may water long little very after words called just where most know get through back much before go good new
write our used me man too any day same right look think also around another came come work three word must because does
part even place well such here take why things help put years different away again off went old number great tell men
say small every found still between name should home big give air line set own under read last never us left end along
while might next sound below saw something thought both few those always looked show large often together asked house
world going want school important until form food keep children feet land side without boy once animals life enough took
sometimes four head above kind began almost live page got earth need far hand high year mother light parts country father
let night following picture being study second eyes soon times story boys since white days ever paper hard near sentence
better best across during today others however sure means knew try told young miles sun ways thing whole hear example heard
several change answer room sea against top turned learn point city play toward five using himself usually money seen car
morning body upon family later turn move face door cut done group half red fish plants living black eat short run book
gave order open ground table state true false yes thank hello please sorry question list note text model system user
assistant input output value type key code file data error call result token message request response server client
function arguments parameters object string integer boolean array null content role label choice score input level
option reply tool tools json think summary language english time weather city temperature
`
  .trim()
  .split(/\s+/);

/** Words that begin sentences, and the decision labels in other cases; with and without a space before them. */
export const CAPITALISED: readonly string[] = `
The A It In This He We They You And But If When What How There She That Yes No For As One Hello Please True False Question
Answer Input Options Thank You
`
  .trim()
  .split(/\s+/);

/** Marks that follow a word directly. */
export const MARKS: readonly string[] = [',', '.', '.\n\n', ':', '?', ';', '!', '\n', '\n\n', '...', "'s", "'t", '-'];

/** Pieces of JSON and code. */
export const SYNTAX: readonly string[] = [
  '":',
  ' "',
  '",',
  ' {"',
  '{"',
  '"}',
  '"}}',
  '}}',
  '}\n',
  '"}}\n',
  ' {',
  ' [',
  ' ["',
  '["',
  '"]',
  '"],',
  '],',
  '},',
  '>\n',
  '</',
  ' (',
  ').',
  '()',
  ' =',
  ' -',
  ' /',
  '##',
  '```',
  '  ',
  '    ',
];

/** Characters of more than one byte, so that replies have some; a token is always a whole character. */
export const LONG_CHARACTERS: readonly string[] = Array.from(
  'éèüöäßñçåøéáíóπλДжяи中文日本語한국어안녕–—“”‘’…€→✓😀🎉🚀👍',
);
