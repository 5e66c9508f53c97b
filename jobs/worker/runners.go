package worker

import (
	"context"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// runner carries a job out on a worker.
type runner func(ctx context.Context, a *attempt, args kind.Args) (result, error)

// runners are the functions that carry the jobs of each kind out.
func runners() map[string]runner {
	return map[string]runner{
		models.KindCreate:      runs(runCreate),
		models.KindBuild:       runs(runBuild),
		models.KindDelete:      runs(runDelete),
		models.KindPause:       runs(runPause),
		models.KindResume:      runs(runResume),
		models.KindTimeout:     runs(runSetTimeout),
		kind.NameEgress:        runs(runSetEgress),
		kind.NameEnv:           runs(runSetEnv),
		kind.NamePort:          runs(runPort),
		models.KindExec:        runs(runExec),
		models.KindExecWait:    runs(runExecWait),
		models.KindExecStdin:   runs(runExecStdin),
		models.KindExecSignal:  runs(runExecSignal),
		models.KindExecDelete:  runs(runExecDelete),
		models.KindCode:        runs(runCode),
		models.KindCodeCreate:  runs(runCreateContext),
		models.KindCodeDelete:  runs(runDeleteContext),
		kind.NameProcessList:   runs(runListProcesses),
		kind.NameProcessSignal: runs(runSignalProcess),
		"write":                runs(runWrite),
		"read":                 runs(runRead),
		"list":                 runs(runList),
		"stat":                 runs(runStat),
		"mkdir":                runs(runMakeDir),
		"move":                 runs(runMove),
		"remove":               runs(runRemove),
		"edit":                 runs(runEdit),
		"glob":                 runs(runGlob),
		"grep":                 runs(runGrep),
		"write_many":           runs(runWriteMany),
		"read_many":            runs(runReadMany),
	}
}

// runs is the runner of a kind whose arguments are a T.
func runs[T kind.Args](run func(context.Context, *attempt, T) (result, error)) runner {
	return func(ctx context.Context, a *attempt, args kind.Args) (result, error) { return run(ctx, a, args.(T)) }
}
