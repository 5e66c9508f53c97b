# Runs cells of bash one after the other in one shell. Descriptor 8 brings them, each as values that end with NUL: id,
# directory, code, number of variables, variables; descriptor 9 takes lines of JSON about them. A shell that a cell makes
# exit hands its state to another in its process.
__sandyard_cell='' __sandyard_code='' __sandyard_count=0 __sandyard_env=()
__sandyard_next() {
  local __sandyard_id __sandyard_cwd __sandyard_pairs
  __sandyard_end 0 # of a cell that has left the loop
  IFS= builtin read -r -d '' -u 8 __sandyard_id || builtin exit
  IFS= builtin read -r -d '' -u 8 __sandyard_cwd
  IFS= builtin read -r -d '' -u 8 __sandyard_code
  IFS= builtin read -r -d '' -u 8 __sandyard_pairs
  __sandyard_cell=$__sandyard_id __sandyard_count=$((__sandyard_count + 1)) __sandyard_env=()
  builtin printf '{"id":"%s","type":"begin","count":%d}\n' "$__sandyard_cell" "$__sandyard_count" >&9
  while ((__sandyard_pairs-- > 0)); do __sandyard_set; done
  if [[ -n $__sandyard_cwd ]] && ! builtin cd -- "$__sandyard_cwd"; then
    __sandyard_code='(exit 1)'
  fi
}
__sandyard_set() {
  local __sandyard_pair __sandyard_name
  IFS= builtin read -r -d '' -u 8 __sandyard_pair
  __sandyard_name=${__sandyard_pair%%=*}
  case $__sandyard_name in [!A-Za-z_]* | *[!A-Za-z0-9_]*) builtin return ;; esac
  __sandyard_env+=("$__sandyard_name" "${!__sandyard_name+set}" "${!__sandyard_name-}")
  builtin export "$__sandyard_pair"
}
__sandyard_end() {
  local __sandyard_code=$1 __sandyard_i
  [[ -n $__sandyard_cell ]] || builtin return 0
  for ((__sandyard_i = 0; __sandyard_i < ${#__sandyard_env[@]}; __sandyard_i += 3)); do
    if [[ -n ${__sandyard_env[__sandyard_i + 1]} ]]; then
      builtin export "${__sandyard_env[__sandyard_i]}=${__sandyard_env[__sandyard_i + 2]}"
    else
      builtin unset -v "${__sandyard_env[__sandyard_i]}"
    fi
  done
  builtin printf '{"id":"%s","type":"done","count":%d,"exit_code":%d}\n' "$__sandyard_cell" "$__sandyard_count" "$__sandyard_code" >&9
  __sandyard_cell=''
}
# Writes the shell's variables, functions and aliases as a script.
__sandyard_state() {
  builtin compgen -v | while IFS= builtin read -r __sandyard_name; do
    case $__sandyard_name in
      BASH* | COMP_* | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS | HISTCMD | LINENO | OPTERR | OPTIND | PIPESTATUS | PPID | RANDOM | SECONDS | SHELLOPTS | SHLVL | SRANDOM | UID | _ | __sandyard_*) ;;
      *) builtin declare -p "$__sandyard_name" ;;
    esac
  done
  builtin declare -f
  builtin alias -p
  builtin umask -p
}
__sandyard_exit() {
  if [[ -n $__sandyard_cell ]]; then __sandyard_anew "$1"; fi
}
# Goes on in a new shell. The variables of this function stay out of the state, as all whose names begin so.
__sandyard_anew() {
  local __sandyard_code=$1 __sandyard_flags=$- __sandyard_options __sandyard_kept __sandyard_boot
  {
    set +eux
    __sandyard_options="$(builtin shopt -p; builtin set +o)
      case $__sandyard_flags in *e*) set -e ;; esac
      case $__sandyard_flags in *u*) set -u ;; esac
      case $__sandyard_flags in *x*) set -x ;; esac"
    __sandyard_kept="shopt -s extglob expand_aliases
      $(__sandyard_state)"
    __sandyard_boot="{
      $(builtin declare -f __sandyard_next __sandyard_set __sandyard_end __sandyard_state __sandyard_exit __sandyard_anew __sandyard_interrupt __sandyard_traps)
      $(builtin declare -p __sandyard_cell __sandyard_count __sandyard_env __sandyard_run)
      builtin . /dev/fd/7
      exec 6<&- 7<&-
      __sandyard_traps
      __sandyard_end $__sandyard_code
      $__sandyard_options
    } 2>/dev/null"
  } 2>/dev/null
  builtin exec bash -c "$__sandyard_run" bash 6<<<"$__sandyard_boot" 7<<<"$__sandyard_kept"
}
__sandyard_interrupt() {
  if [[ -n $__sandyard_cell ]]; then builtin exit 130; fi
}
__sandyard_traps() {
  builtin trap '__sandyard_exit "$?"' EXIT
  builtin trap __sandyard_interrupt INT
}
# All on one line, so that lines of cells are counted from 1. A cell that breaks out of the loops ends the shell, in the
# way of exit.
__sandyard_run='IFS= builtin read -r -d "" -u 6 __sandyard_code; eval "$__sandyard_code"; while :; do while __sandyard_next; do eval "$__sandyard_code"; { __sandyard_end "$?"; } 2>/dev/null; done; done'
builtin printf '{"type":"ready"}\n' >&9
__sandyard_anew 0
