/*
 * State that the files of the SAPI share: the worker, whether the response has ended, settings,
 * worker mode.
 */
#include "php_sendoff.h"

sendoff_worker *sendoff_php_worker;

bool sendoff_php_finished;

sendoff_php_ini sendoff_php_settings;

sendoff_php_boot sendoff_boot;
