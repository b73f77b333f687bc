<?php
// A worker in PHP that answers one request after another, with the faults that such programs have.
//
// php shop.php leak|ok SEED FAULT
[, $mode, $seed, $fault] = $argv;
$leaks = $mode === "leak";
mt_srand((int)$seed);

function body(): string
{
    return str_repeat("b", mt_rand(5000, 12000));
}

class Log
{
    public static array $entries = [];
}

class Listeners
{
    public array $all = [];
}

$listeners = new Listeners();
for ($count = 1;; $count++) {
    if ($fault === "history") {
        Log::$entries[] = body();
        if (!$leaks)
            Log::$entries = [];
    } else {
        $page = body();
        $listeners->all[] = function () use ($page) { return strlen($page); };
        if (!$leaks)
            array_pop($listeners->all);
    }
    if ($count === 400)
        echo "serving\n";
    usleep(mt_rand(15000, 25000));
}
