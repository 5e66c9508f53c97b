#!/bin/bash
# Runs the deep suites one after the other, goes on after one that failed, and prints a table of step, seconds and
# result; `make verify` calls it. Ends with 1 when a step failed. A step that can check nothing here says so and fails
# nothing. ONLY="step step": these alone.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

steps=(race vulnerabilities compose e2b attacks faults gvisor chaos soak providers gate)

race() { make test LONG=1 RACE=1 STRICT=1; }
# Where the database of vulnerabilities cannot be reached nothing is checked, which is no pass.
vulnerabilities() {
	local report status
	report=$(make vuln 2>&1)
	status=$?
	echo "$report"
	[[ $report != *'NOTHING WAS CHECKED'* ]] || return 77
	return $status
}
compose() { make compose-check && make compose-smoke; }
e2b() { make e2b RACE=1 STRICT=1; }
attacks() { make attack; }
faults() { make faults; }
gvisor() { make gvisor; }
chaos() { make chaos SEED=1 LENGTH=2m && make chaos SEED=1 LENGTH=2m PROVIDER=local; }
soak() { make soak; }
providers() { make soak-providers SEED=1; }
gate() { make gate-proof STEP=load RUNS=5; }

read -ra wanted <<<"${ONLY:-${steps[*]}}"
unset ONLY MAKEFLAGS MFLAGS MAKEOVERRIDES # make would hand our ONLY to the steps, where it names one fault or attack
for step in "${wanted[@]}"; do
	[[ " ${steps[*]} " == *" $step "* ]] || { echo "verify: there is no step $step; there are: ${steps[*]}" >&2; exit 2; }
done

table=() failed=0
for step in "${wanted[@]}"; do
	echo "== $step ($(date -u +%T))"
	start=$SECONDS
	"$step"
	case $? in
	0) result=passed ;;
	77) result='NOT CHECKED' ;;
	*) result=FAILED failed=1 ;;
	esac
	table+=("$(printf '%-16s %7d  %s' "$step" $((SECONDS - start)) "$result")")
done
echo
printf '%-16s %7s  %s\n' step seconds result
printf '%s\n' "${table[@]}"
exit $failed
