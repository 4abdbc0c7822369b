#!/usr/bin/env bash
# install.sh - an installed snug finds its recipes and models from any folder; what is in the current folder comes
# first; uninstalling takes away what was installed and nothing else.
set -u
cd "$(dirname "$0")/.."
. tests/shell/verdict.sh
unset MAKEFLAGS MAKELEVEL MFLAGS
root="$work/a root" usr="$work/a root/usr"
snug="$usr/bin/snug"
mkdir -p "$usr/bin" "$work/elsewhere"
echo other > "$usr/bin/other"

make -n install DESTDIR=/d PREFIX=/p 2>&1 | grep -qF 'tools/install.sh snug "/d/p"' &&
    make -n uninstall DESTDIR=/d PREFIX=/p | grep -qF 'tools/install.sh --remove "/d/p"'
verdict make_install_goes_below_destdir_and_prefix $?

tools/install.sh "${SNUG:-./snug}" "$usr" > "$work/log" 2>&1 && [ -x "$snug" ]; bad=$?
for f in snug/recipes/reason-tally.yaml snug/models/tally/config.json doc/snug/LICENSE doc/snug/docs; do
    [ -e "$usr/share/$f" ] || bad=1
done
verdict binary_recipes_models_docs_and_licence_are_installed $bad

cd "$work/elsewhere"
echo '{"problem": "Ada has 3 apples and finds 4 more. How many apples does Ada have?", "answer": "7"}' > p.jsonl
"$snug" reason --device cpu --config recipes/reason-tally.yaml --budget 1GiB --data p.jsonl --max-iterations 0 \
    --out r.json > "$work/log" 2>&1 && [ -s r.json ]
verdict an_installed_recipe_and_its_model_are_found_from_any_folder $?
bad=0
for name in tally models/tally; do
    "$snug" generate --device cpu --model $name --prompt 1 --max-tokens 1 >> "$work/log" 2>&1 || bad=1
done
shape="--set num_hidden_layers=1 --set hidden_size=16 --set num_attention_heads=2 --set num_key_value_heads=1"
"$snug" init --model llama-3.2-1b --tokenizer recipes/demo $shape --set intermediate_size=16 --set vocab_size=512 \
    --out m >> "$work/log" 2>&1 && [ -e m/tokenizer.json ] || bad=1
echo '{"text": "one two"}' | "$snug" tokenize --tokenizer tally >> "$work/log" 2>&1 || bad=1
verdict models_and_tokenizers_are_found_by_name $bad
mkdir -p models/tally
"$snug" generate --device cpu --model models/tally --prompt 1 > "$work/log" 2>&1
[ $? -eq 1 ] && grep -q '^snug: .*models/tally: .*config.json' "$work/log"
verdict what_is_in_the_current_folder_comes_first $?
"$snug" plan --model bin > "$work/log" 2>&1
[ $? -eq 1 ] && grep -q 'not a preset' "$work/log"
verdict other_files_beside_the_binary_are_no_models $?

cd "$OLDPWD"
tools/install.sh --remove "$usr" > "$work/log" 2>&1 && [ "$(find "$usr" -type f)" = "$usr/bin/other" ]
verdict uninstalling_leaves_what_is_not_ours $?
echo file > "$work/file"
! tools/install.sh "${SNUG:-./snug}" "$work/file/x" > "$work/log" 2>&1 && grep -q 'sudo make install' "$work/log"
verdict a_prefix_that_cannot_be_written_says_what_to_do $?
closing
