run() { exec bash "$CASES/jobs.bash"; }
