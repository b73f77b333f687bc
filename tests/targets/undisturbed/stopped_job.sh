run() { exec script -E never -qec "bash -m '$CASES/stopped_job.bash'" /dev/null; }
